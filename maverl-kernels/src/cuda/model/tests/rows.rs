use super::*;

pub(super) fn rows_are_selected_and_their_gradients_added_in_order<M: Tested>(
    kernels: &Kernels<M>,
) {
    for (n, d) in [(1, 8), (7, 17), (70, 64), (5, 328)] {
        let rows: Vec<u32> = (0..n as u32 + 3).map(|i| i * 5 % n as u32).collect();
        let (x, dy) = (random_bf16(1, n * d), random_bf16(2, rows.len() * d));
        let (y, dx) = in_every_order(kernels, |kernels| {
            let (given, back) = (kernels.array_of(&x).unwrap(), kernels.array_of(&dy).unwrap());
            let mut y = kernels.new_array(rows.len() * d).unwrap();
            let selected = kernels.selected_rows(&rows).unwrap();
            kernels.combine_rows(given.as_slice(), &selected, d, y.slice_mut()).unwrap();
            let mut dx = kernels.new_array((n + 1) * d).unwrap();
            let scattered = kernels.scattered_rows(&rows, n + 1).unwrap();
            kernels.combine_rows(back.as_slice(), &scattered, d, dx.slice_mut()).unwrap();
            (kernels.read_array(&y).unwrap(), kernels.read_array(&dx).unwrap())
        });
        let picked: Vec<u16> =
            rows.iter().flat_map(|&row| &x[row as usize * d..][..d]).copied().collect();
        assert_eq!(y, picked, "{n} rows of {d}");
        let mut sums = vec![0.0; (n + 1) * d];
        for (&row, dy) in rows.iter().zip(from_bf16(&dy).chunks(d)) {
            let to = &mut sums[row as usize * d..][..d];
            to.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
        }
        assert_eq!(dx, to_bf16(&sums), "{n} rows of {d}");
    }
}

pub(super) fn copies_leave_what_is_beside_them<M: Tested>(kernels: &Kernels<M>) {
    for n in [8, 264, 4096] {
        let (x, before) = (random_bf16(1, n), random_bf16(2, 3 * n));
        let found = in_every_order(kernels, |kernels| {
            let (given, mut y) =
                (kernels.array_of(&x).unwrap(), kernels.array_of(&before).unwrap());
            kernels.copy_to_front(given.as_slice(), y.slice_mut()).unwrap();
            kernels.copy_within(y.slice_mut(), [0, 2 * n], n).unwrap();
            kernels.read_front(&y, 3 * n).unwrap()
        });
        assert_eq!(found, [&x[..], &before[n..2 * n], &x].concat());
    }
}

use super::super::products::{NT_16, NT_64, NT_128};
use super::*;
use crate::cuda::{AdapterTerms, Destination, LinearOutput, MapOutput, count_pieces};

fn plain(y: crate::cuda::SliceMut<'_, f32>) -> LinearOutput<'_> {
    LinearOutput { scale: 1.0, bias: None, to: Destination::F32(y) }
}

/// `x [m, k] wᵀ` with `w [n, k]`, in f64.
pub(super) fn nt(x: &[u16], w: &[u16], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let (x, w) = (wide(x), wide(w));
    let dot = |i: usize, j: usize| (0..k).map(|t| x[i * k + t] * w[j * k + t]).sum();
    (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| dot(i, j)).collect()
}

pub(super) fn transposed(x: &[u16], rows: usize, columns: usize) -> Vec<u16> {
    (0..columns).flat_map(|c| (0..rows).map(move |r| x[r * columns + c])).collect()
}

const SHAPES: [[usize; 3]; 9] = [
    [1, 1, 1],
    [7, 17, 63],
    [17, 65, 7],
    [63, 7, 65],
    [65, 63, 17],
    [16, 64, 128],
    [130, 130, 40],
    [3, 72, 1100],
    [70, 65, 136],
];

pub(super) fn every_form_of_a_product_agrees_with_f64<M: Tested>(kernels: &Kernels<M>) {
    let kernels = &kernels.with_own_products();
    for shape in SHAPES {
        let [m, n, k] = shape;
        let (x, w) = (random_bf16(1, m * k), random_bf16(2, n * k));
        let (xt, wt) = (transposed(&x, m, k), transposed(&w, n, k));
        let run = |kernels: &Kernels<M>| {
            let [x, w, xt, wt] = [&x, &w, &xt, &wt].map(|x| kernels.array_of(x).unwrap());
            let mut results = Vec::new();
            for tile in [NT_16, NT_64, NT_128] {
                let mut y = kernels.new_array(m * n).unwrap();
                let (x, w) = (x.as_slice(), w.as_slice());
                kernels.linear_by(tile, x, w, shape, None, plain(y.slice_mut())).unwrap();
                results.push(bits(&kernels.read_array(&y).unwrap()));
            }
            assert!(results.iter().all(|y| *y == results[0]), "{shape:?}: tiles differ");
            let mut y = kernels.new_array(m * n).unwrap();
            kernels
                .linear_back(x.as_slice(), wt.as_slice(), shape, None, plain(y.slice_mut()))
                .unwrap();
            results.push(bits(&kernels.read_array(&y).unwrap()));
            let (xt, wt) = (xt.as_slice(), wt.as_slice());
            kernels.linear_back_weight(xt, wt, shape, plain(y.slice_mut())).unwrap();
            results.push(bits(&kernels.read_array(&y).unwrap()));
            results
        };
        let want = nt(&x, &w, shape);
        for y in in_every_order(kernels, run) {
            let y: Vec<f32> = y.into_iter().map(f32::from_bits).collect();
            near(&format!("{shape:?}"), &y, &want, 1e-6);
        }
    }
}

pub(super) fn large_tiles_of_the_backward_products_agree_with_f64<M: Tested>(kernels: &Kernels<M>) {
    let kernels = &kernels.with_own_products();
    let shape @ [m, n, k] = [270, 130, 40];
    let (x, w) = (random_bf16(1, m * k), random_bf16(2, n * k));
    let (xt, wt) = (transposed(&x, m, k), transposed(&w, n, k));
    let run = |kernels: &Kernels<M>| {
        let [x, xt, wt] = [&x, &xt, &wt].map(|x| kernels.array_of(x).unwrap());
        let [mut y, mut z] = [0; 2].map(|_| kernels.new_array(m * n).unwrap());
        kernels
            .linear_back(x.as_slice(), wt.as_slice(), shape, None, plain(y.slice_mut()))
            .unwrap();
        kernels
            .linear_back_weight(xt.as_slice(), wt.as_slice(), shape, plain(z.slice_mut()))
            .unwrap();
        [y, z].map(|y| bits(&kernels.read_array(&y).unwrap()))
    };
    for y in in_every_order(kernels, run) {
        let y: Vec<f32> = y.into_iter().map(f32::from_bits).collect();
        near("a large tile", &y, &nt(&x, &w, shape), 1e-6);
    }
}

pub(super) fn a_row_has_the_same_bits_by_every_tile_with_pieces_apart_or_walked<M: Tested>(
    kernels: &Kernels<M>,
) {
    let [m, n, k] = [300, 72, 2100];
    assert_eq!(count_pieces(n, k), 4);
    let (x, w) = (random_bf16(1, m * k), kernels.array_of(&random_bf16(2, n * k)).unwrap());
    let (left, right) = (random_bf16(3, m * 8), kernels.array_of(&random_bf16(4, n * 8)).unwrap());
    for adapter in [false, true] {
        let of = |rows: std::ops::Range<usize>| {
            let m = rows.len();
            let x = kernels.array_of(&x[rows.start * k..rows.end * k]).unwrap();
            let left = kernels.array_of(&left[rows.start * 8..rows.end * 8]).unwrap();
            let terms = AdapterTerms { left: left.as_slice(), right: right.as_slice(), rank: 8 };
            let terms = adapter.then_some(terms);
            let mut y = kernels.new_array(m * n).unwrap();
            let out = plain(y.slice_mut());
            kernels.linear(x.as_slice(), w.as_slice(), [m, n, k], terms, out).unwrap();
            bits(&kernels.read_array(&y).unwrap())
        };
        let all = of(0..m);
        for rows in [0..1, 5..8, 100..117, 10..80] {
            assert_eq!(of(rows.clone()), all[rows.start * n..rows.end * n], "{rows:?}");
        }
    }
}

#[test]
fn pieces_follow_the_weight_alone() {
    assert_eq!(
        [count_pieces(896, 4864), count_pieces(4096, 4864), count_pieces(896, 896)],
        [7, 1, 1]
    );
    assert_eq!(
        [count_pieces(128, 896), count_pieces(1, 100_000), count_pieces(3584, 18944)],
        [1, 96, 2]
    );
}

pub(super) fn outputs_have_their_scale_bias_adapter_rounding_and_sum<M: Tested>(
    kernels: &Kernels<M>,
) {
    for shape in [[5, 17, 63], [70, 66, 1040], [270, 33, 40]] {
        let [m, n, k] = shape;
        let rank = 5;
        let [x, w, left, right, bias] =
            [m * k, n * k, m * rank, n * rank, n].map(|len| random_bf16(len as u64, len));
        let base = random(9, m * n);
        let run = |kernels: &Kernels<M>| {
            let [x, w, left, right, bias] =
                [&x, &w, &left, &right, &bias].map(|x| kernels.array_of(x).unwrap());
            let terms = AdapterTerms { left: left.as_slice(), right: right.as_slice(), rank };
            let (mut half, mut sum) =
                (kernels.new_array(m * n).unwrap(), kernels.array_of(&base).unwrap());
            let (onto, mut apart) =
                (kernels.array_of(&base).unwrap(), kernels.new_array(m * n).unwrap());
            let out = |to| LinearOutput { scale: 0.5, bias: Some(bias.as_slice()), to };
            for to in [
                Destination::Bf16(half.slice_mut()),
                Destination::Add(sum.slice_mut()),
                Destination::Onto(onto.as_slice(), apart.slice_mut()),
            ] {
                kernels.linear(x.as_slice(), w.as_slice(), shape, Some(terms), out(to)).unwrap();
            }
            let [sum, apart] = [&sum, &apart].map(|y| bits(&kernels.read_array(y).unwrap()));
            assert_eq!(sum, apart);
            (kernels.read_array(&half).unwrap(), sum)
        };
        let (half, sum) = in_every_order(kernels, run);
        let mut want = nt(&x, &w, shape);
        let (terms, bias) = (nt(&left, &right, [m, n, rank]), wide(&bias));
        for (i, want) in want.iter_mut().enumerate() {
            *want = (*want + terms[i]) * 0.5 + bias[i % n];
        }
        near_bf16(&format!("{shape:?}"), &half, &want);
        let want: Vec<f64> = want.iter().zip(&base).map(|(y, &b)| y + f64::from(b)).collect();
        let sum: Vec<f32> = sum.into_iter().map(f32::from_bits).collect();
        near(&format!("{shape:?}"), &sum, &want, 1e-6);
    }
}

pub(super) fn maps_of_one_input_have_the_bits_of_each_alone<M: Tested>(kernels: &Kernels<M>) {
    // Sums of one piece, of several, and of both; an odd number of columns; one, two and three maps.
    let cases: [(usize, &[usize]); 5] = [
        (72, &[66, 8, 130]),
        (1040, &[72, 200]),
        (1600, &[4100, 65, 7]),
        (1040, &[33]),
        (8, &[1; 3]),
    ];
    for (k, widths) in cases {
        for m in [1, 16, 17, 70] {
            let x = random_bf16(1, m * k);
            let run = |kernels: &Kernels<M>, apart: bool| {
                let x = kernels.array_of(&x).unwrap();
                let mut maps: Vec<_> = (2..)
                    .zip(widths)
                    .map(|(seed, &n)| {
                        let w = kernels.array_of(&random_bf16(seed, n * k)).unwrap();
                        let bias = kernels.array_of(&random_bf16(seed + 7, n)).unwrap();
                        (w, (seed != 3).then_some(bias), kernels.new_array::<u16>(m * n).unwrap())
                    })
                    .collect();
                if apart {
                    for (w, bias, y) in &mut maps {
                        let (to, bias) = (Destination::Bf16(y.slice_mut()), bias.as_ref());
                        let out = LinearOutput { scale: 1.0, bias: bias.map(|b| b.as_slice()), to };
                        let shape = [m, w.len() / k, k];
                        kernels.linear(x.as_slice(), w.as_slice(), shape, None, out).unwrap();
                    }
                } else {
                    let outputs = maps.iter_mut().map(|(w, bias, y)| {
                        let bias = bias.as_ref().map(|bias| bias.as_slice());
                        MapOutput { w: w.as_slice(), bias, to: y.slice_mut() }
                    });
                    kernels
                        .linear_maps(x.as_slice(), [m, k], &outputs.collect::<Vec<_>>())
                        .unwrap();
                }
                let read = maps.iter().map(|(.., y)| kernels.read_array(y).unwrap());
                read.collect::<Vec<_>>()
            };
            let want = run(kernels, true);
            if widths.contains(&4100) {
                assert_eq!(run(kernels, false), want, "{m} rows of {k}");
            } else {
                let found = in_every_order(kernels, |kernels| run(kernels, false));
                assert_eq!(found, want, "{m} rows of {k}");
            }
        }
    }
}

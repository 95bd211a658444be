use half::bf16;

use super::*;
use crate::simd::{available_paths, run_on_path};
use crate::testing::{random, same_bits, threads};

#[test]
fn columns_that_are_split_and_joined_are_the_rows_on_any_number_of_threads() {
    let (n, widths) = (3000, [5, 1, 14]);
    let x = random(1, n * 20);
    for count in [1, 3] {
        let joined = threads(count, || {
            let (mut joined, mut start) = (vec![f32::NAN; x.len()], 0);
            for width in widths {
                let mut part = vec![f32::NAN; n * width];
                copy_columns(&x, 20, start..start + width, &mut part);
                write_columns(&part, &mut joined, 20, start..start + width);
                start += width;
            }
            joined
        });
        same_bits(&joined, &x);
    }
    let mut part = [0.0; 4];
    copy_columns(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 3, 1..3, &mut part);
    assert_eq!(part, [1.0, 2.0, 4.0, 5.0]);
}

#[test]
fn sums_and_factors_are_those_of_each_element() {
    let (x, y) = (random(1, 40_000), random(2, 40_000));
    let mut sum = x.clone();
    threads(3, || {
        add_numbers(&mut sum, &y);
        scale_numbers(&mut sum, 0.3);
    });
    let want: Vec<f32> = x.iter().zip(&y).map(|(x, y)| (x + y) * 0.3).collect();
    same_bits(&sum, &want);
    threads(3, || multiply_numbers(&x, &y, &mut sum));
    let want: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x * y).collect();
    same_bits(&sum, &want);
}

#[test]
#[should_panic(expected = "columns 2..4 of 6 elements in rows of 3: 4")]
fn columns_outside_of_the_rows_are_refused() {
    copy_columns(&[0.0; 6], 3, 2..4, &mut [0.0; 4]);
}

#[test]
fn bytes_of_numbers_are_those_of_the_standard_library_and_of_half_on_every_path() {
    let mut x = random(5, 40_003);
    let odd =
        [0x7fc0_0001, 0xff80_0000, 0x7f80_0000, 0x0000_0001, 0x8000_0000, 0x3f80_8000, 0x3f81_8000];
    x.iter_mut()
        .step_by(7)
        .zip(odd.into_iter().cycle())
        .for_each(|(x, bits)| *x = f32::from_bits(bits));
    let whole: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    let rounded: Vec<u8> = x.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect();
    for path in available_paths() {
        for count in [1, 3] {
            let mut bytes = vec![1; whole.len()];
            run_on_path(path, count, || copy_to_bytes(&x, &mut bytes));
            assert!(bytes == whole, "{path} {count}");
            let mut bytes = vec![1; rounded.len()];
            assert!(!run_on_path(path, count, || round_to_bf16_bytes(&x, &mut bytes)));
            assert!(bytes == rounded, "{path} {count}");
        }
    }
}

#[test]
fn a_finite_number_that_becomes_an_infinity_in_bf16_is_reported() {
    for (x, overflows) in [
        (f32::MAX, true),
        (f32::MIN, true),
        (f32::INFINITY, false),
        (f32::NAN, false),
        (3e38, false),
    ] {
        for at in [0, 17, 39_999] {
            let mut numbers = vec![1.0; 40_000];
            numbers[at] = x;
            let found = threads(3, || round_to_bf16_bytes(&numbers, &mut vec![0; 80_000]));
            assert_eq!(found, overflows, "{x} at {at}");
        }
    }
}

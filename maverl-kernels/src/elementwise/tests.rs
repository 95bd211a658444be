use super::*;
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

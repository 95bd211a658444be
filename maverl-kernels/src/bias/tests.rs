use super::*;
use crate::testing::{random, same_bits, threads};

#[test]
fn the_bias_is_added_to_every_row() {
    let mut y = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    add_bias(&[10.0, 20.0], &mut y);
    assert_eq!(y, [10.0, 21.0, 12.0, 23.0, 14.0, 25.0]);
}

#[test]
fn its_gradient_sums_rows_in_order_on_any_number_of_threads() {
    for (n, d) in [(3000, 24), (700, 130), (3, 5), (0, 7)] {
        let dy = random(1, n * d);
        let start = random(2, d);
        let mut want = start.clone();
        for dy in dy.chunks(d) {
            want.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
        }
        for count in [1, 2, 5] {
            let mut dbias = start.clone();
            threads(count, || add_bwd(&dy, &mut dbias));
            same_bits(&dbias, &want);
        }
    }
}

#[test]
#[should_panic(expected = "7 elements are not rows of 3")]
fn rows_of_another_length_are_refused() {
    add_bias(&[0.0; 3], &mut [0.0; 7]);
}

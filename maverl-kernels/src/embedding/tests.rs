use super::*;
use crate::testing::{random, same_bits, threads};

#[test]
fn gather_copies_rows() {
    let mut out = [0.0; 6];
    gather_rows(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], &[2, 0, 2], 2, &mut out);
    assert_eq!(out, [4.0, 5.0, 0.0, 1.0, 4.0, 5.0]);
}

#[test]
fn scatter_add_sums_in_token_order_on_any_number_of_threads() {
    let (n, d, vocab) = (3000, 24, 50);
    let dy = random(1, n * d);
    let ids: Vec<u32> = (0..n).map(|i| (i * i % vocab) as u32).collect();
    let mut want = random(2, vocab * d);
    let start = want.clone();
    for (id, dy) in ids.iter().zip(dy.chunks(d)) {
        for (w, dy) in want[*id as usize * d..].iter_mut().zip(dy) {
            *w += dy;
        }
    }
    for count in [1, 2, 5] {
        let mut table = start.clone();
        threads(count, || scatter_add(&dy, &ids, d, &mut table));
        same_bits(&table, &want);
    }
}

#[test]
#[should_panic(expected = "id 3 of a table of 3")]
fn an_id_beyond_the_table_is_refused() {
    gather_rows(&[0.0; 6], &[3], 2, &mut [0.0; 2]);
}

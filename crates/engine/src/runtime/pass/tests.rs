#![allow(clippy::unwrap_used)]

use super::*;
use crate::runtime::Row;
use crate::runtime::packed::tests::random_rows;

fn pass(rows: &[Row], share: bool) -> PassTexts<'_> {
    PassTexts::new(rows.iter().map(PassText::of_row), share)
}

#[test]
fn micro_batches_have_each_row_once_and_fit_the_budget() {
    for seed in 0..20 {
        let rows = random_rows(seed, 25);
        for (share, tokens) in [(true, 1), (true, 60), (true, 150), (true, 9999), (false, 90)] {
            let pass = pass(&rows, share);
            let batches = pass.micro_batches(0..rows.len(), tokens);
            assert_eq!(batches.concat(), pass.order);
            let computed: usize = batches.iter().map(|micro| pass.pack(micro).tokens()).sum();
            assert!(computed >= pass.once);
            for micro in batches {
                assert!(pass.pack(micro).tokens() <= tokens || micro.len() == 1);
            }
            assert!(tokens < 9999 || computed == pass.once);
        }
    }
}

#[test]
fn rows_that_share_nothing_keep_their_order() {
    let rows = random_rows(5, 9);
    let apart = pass(&rows, false);
    assert_eq!(apart.order, (0..9).collect::<Vec<_>>());
    let counts = apart.counts();
    assert_eq!((counts.whole, counts.computed), (counts.once, 0));
}

#[test]
fn equal_rows_are_cut_by_their_entries() {
    let rows = vec![random_rows(1, 1).remove(0); 400];
    let pass = pass(&rows, true);
    let (places, tokens) = (rows[0].completion.len(), pass.once);
    let batches = pass.micro_batches(0..400, tokens);
    assert!(batches.len() > 1);
    assert!(batches.iter().all(|micro| micro.len() * places <= MOST_ENTRIES * tokens));
}

#[test]
fn ranks_get_each_row_once_and_do_not_divide_small_trees() {
    for seed in 0..20 {
        let rows = random_rows(seed, 30);
        let pass = pass(&rows, true);
        let units = pass.rank_units(2);
        let [count, tokens] = [0, 1].map(|of| units.iter().map(|unit| unit[of]).sum::<usize>());
        assert_eq!((count, tokens), (30, pass.once));
        assert!(units.iter().all(|&[rows, tokens]| rows == 1 || tokens < pass.once / 8));
    }
}

#[test]
fn lists_are_in_the_order_of_the_texts() {
    let rows = random_rows(8, 20);
    let pass = pass(&rows, true);
    let numbers = |packed: &PackedRows, micro: &[usize]| {
        let bounds = packed.completions.windows(2).zip(micro);
        Ok(bounds.flat_map(|(b, &text)| vec![text as f32; b[1] - b[0]]).collect())
    };
    let lists = pass.lists(&Peers::default(), 70, numbers).unwrap();
    for (text, (row, list)) in rows.iter().zip(lists).enumerate() {
        assert_eq!(list, vec![text as f32; row.completion.len()]);
    }
}

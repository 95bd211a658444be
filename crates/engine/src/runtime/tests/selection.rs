//! Updates with a selection of tokens.

use super::*;
use crate::loss::{ClipCovOptions, KlCovOptions, Selection, TopEntropyOptions};
use crate::runtime::UpdateStats;
use maverl_dist::Ranks;
use ranks::testing::on_ranks;

const HALF: Selection = Selection::Entropy(TopEntropyOptions { share: 0.5 });
const COVARIANCE: Selection =
    Selection::ClipCov(ClipCovOptions { share: 0.3, low: 0.0, high: 9.0 });

/// Returns rows of several lengths, with log-probs that are not those of the model.
fn rows() -> Vec<Row> {
    let row = |i: u32| {
        let completion: Vec<u32> = (0..3 + i % 5).map(|t| (i * 37 + t * 11) % 500).collect();
        Row {
            prompt: (0..4 + i % 7).map(|t| (i * 13 + t * 29) % 500).collect(),
            logprobs: completion.iter().map(|&id| -5.0 - (id % 7) as f32 * 0.3).collect(),
            advantages: vec![i as f32 / 4.0 - 1.0; completion.len()],
            completion,
            ..Row::default()
        }
    };
    (0..9).map(row).collect()
}

/// Updates once, on all ranks of a run or without any. Returns the fingerprint of the weights and the statistics.
async fn updated(
    micro_batch_tokens: usize,
    ranks: Option<&Ranks>,
    change: impl Fn(&mut Batch),
) -> (String, UpdateStats) {
    let mut setup = setup(&["p"]);
    setup.options.micro_batch_tokens = micro_batch_tokens.try_into().unwrap();
    let runtime = Runtime::start_on(&setup.workers, &setup.options, ranks).unwrap();
    let policy = runtime.policies()[0].clone();
    let mut batch = Batch { lr: 1e-3, ..batch(rows()) };
    change(&mut batch);
    let stats = policy.update(batch).await.unwrap();
    if let Some(ranks) = ranks {
        ranks.channel(0).barrier().unwrap();
        ranks.leave();
    }
    (policy.fingerprint().await.unwrap(), stats)
}

fn select(selection: Selection) -> impl Fn(&mut Batch) {
    move |batch| batch.selection = selection
}

#[tokio::test]
async fn a_selection_of_all_tokens_changes_no_bit() {
    let plain = updated(4096, None, |_| {}).await;
    assert_eq!(plain.1.select_kept, None);
    let all = Selection::Entropy(TopEntropyOptions { share: 1.0 });
    let (fingerprint, stats) = updated(4096, None, select(all)).await;
    assert_eq!((fingerprint, stats.loss), (plain.0, plain.1.loss));
    assert_eq!((stats.select_kept, stats.select_covariance), (Some(1.0), None));
}

#[tokio::test]
async fn dropped_tokens_have_no_gradient_and_are_in_no_denominator() {
    let tokens: usize = rows().iter().map(|row| row.completion.len()).sum();
    for (selection, kept) in [(HALF, tokens.div_ceil(2)), (COVARIANCE, tokens - tokens * 3 / 10)] {
        let (fingerprint, stats) = updated(4096, None, select(selection)).await;
        assert_eq!(stats.select_kept, Some(kept as f64 / tokens as f64), "{selection:?}");
        assert_ne!(fingerprint, updated(4096, None, |_| {}).await.0);
    }
    // Only the entropy bonus has a gradient, of weights 1 over all: the sum of the weights is that of the kept tokens.
    let bonus = |selection: Selection| {
        updated(4096, None, move |batch| {
            batch.selection = selection;
            batch.aggregation = Aggregation::SequenceSum;
            for row in &mut batch.rows {
                row.advantages.fill(0.0);
                row.loss.entropy_coef = 1.0;
            }
        })
    };
    let [all, half] = [bonus(Selection::None).await.1, bonus(HALF).await.1];
    assert!(half.loss > all.loss && half.loss < 0.5 * all.loss, "{} {}", half.loss, all.loss);
}

#[tokio::test]
async fn a_penalty_pulls_back_to_the_sampler() {
    let coef = |coef| Selection::KlCov(KlCovOptions { share: 1.0, coef });
    let zero = |selection: Selection| {
        updated(4096, None, move |batch| {
            batch.selection = selection;
            batch.rows.iter_mut().for_each(|row| row.advantages.fill(0.0));
        })
    };
    let [one, two] = [zero(coef(1.0)).await.1, zero(coef(2.0)).await.1];
    assert!(one.loss > 0.1 && one.select_kept == Some(0.0), "{one:?}");
    assert_eq!((two.loss, one.pg_loss), (2.0 * one.loss, 0.0));
    assert!((two.grad_norm - 2.0 * one.grad_norm).abs() < 1e-5 * two.grad_norm);
    assert_eq!(zero(Selection::None).await.1.grad_norm, 0.0);
}

#[tokio::test]
async fn a_selection_depends_neither_on_micro_batches_nor_on_rows_that_are_skipped() {
    for selection in [HALF, COVARIANCE] {
        let [one, many] = [4096, 24].map(|tokens| updated(tokens, None, select(selection)));
        let (one, many) = (one.await.1, many.await.1);
        assert_eq!(one.select_kept, many.select_kept);
        assert!((one.loss - many.loss).abs() < 1e-6, "{} {}", one.loss, many.loss);
        let skipped = updated(4096, None, |batch| {
            batch.selection = selection;
            batch.rows.push(Row { skipped: true, ..batch.rows[0].clone() });
        });
        let skipped = skipped.await.1;
        assert_eq!((skipped.select_kept, skipped.loss), (one.select_kept, one.loss));
    }
}

#[test]
fn ranks_select_the_same_tokens() {
    for selection in [HALF, COVARIANCE] {
        let run = |ranks: Option<&Ranks>| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(updated(4096, ranks, select(selection)))
        };
        let alone = run(None).1;
        let both = on_ranks(2, |ranks| run(Some(&ranks)));
        assert_eq!(both[0].0, both[1].0);
        assert_eq!(both[0].1.select_kept, alone.select_kept);
        assert!((both[0].1.grad_norm - alone.grad_norm).abs() < 1e-5 * alone.grad_norm);
    }
}

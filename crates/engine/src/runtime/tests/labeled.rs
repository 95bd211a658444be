//! Updates with replies that are good or bad (KTO).

use super::*;
use crate::runtime::UpdateStats;
use maverl_dist::Ranks;
use ranks::testing::on_ranks;

const KTO: PreferenceOptions = PreferenceOptions {
    loss: PairLoss::Kto,
    beta: 0.5,
    label_smoothing: 0.0,
    reference_free: false,
    margin: 1.0,
    good_weight: 1.0,
    bad_weight: 1.0,
    threshold: 0.5,
};

/// Returns rows of replies, a good one and a bad one to each of several prompts.
pub(super) fn replies() -> Vec<Row> {
    let row = |i: u32| Row {
        prompt: (0..4 + i / 2).map(|t| (i / 2 * 13 + t * 29) % 500).collect(),
        completion: (0..3 + i % 4).map(|t| (i * 37 + t * 11) % 500).collect(),
        ..Row::default()
    };
    (0..8).map(row).collect()
}

pub(super) fn labeled(change: impl Fn(&mut Batch)) -> Batch {
    let objective = Objective::Preference(KTO);
    let mut batch = Batch { lr: 1e-3, objective, ..batch(replies()) };
    change(&mut batch);
    batch
}

/// Updates some times, on all ranks of a run or without any. Returns the fingerprint of the weights and the statistics of each
/// update.
async fn updated(
    micro_batch_tokens: usize,
    ranks: Option<&Ranks>,
    batch: Batch,
) -> (String, Vec<UpdateStats>) {
    let mut setup = setup(&["p"]);
    setup.workers[0].policies[0].reference = true;
    splits::updated(setup, micro_batch_tokens, ranks, batch).await
}

#[tokio::test]
async fn labeled_replies_are_learned_and_no_split_changes_what_is() {
    let mut norms = Vec::new();
    for tokens in [4096, 16] {
        let (_, stats) = updated(tokens, None, labeled(|_| {})).await;
        // The policy is the reference, so every log-ratio and z₀ are 0.
        let first = stats[0].preference.unwrap();
        assert_eq!((stats[0].loss, first.shift, first.accuracy), (0.5, Some(0.0), 0.0));
        let last = stats[3].preference.unwrap();
        assert!(stats[3].loss < 0.5 && last.accuracy > 0.9, "{:?}", stats[3]);
        assert!(last.reward_chosen > last.reward_rejected);
        norms.push(stats[3].grad_norm);
    }
    assert!((norms[0] - norms[1]).abs() < 1e-5 * norms[0], "{norms:?}");
}

#[tokio::test]
async fn a_reply_needs_no_other_of_the_other_label() {
    let paired = updated(4096, None, labeled(|_| {})).await;
    let single = labeled(|batch| batch.pairs = (0..4).flat_map(|_| [[1, 0], [0, 1]]).collect());
    assert_eq!(updated(4096, None, single).await, paired);
    let good = labeled(|batch| batch.pairs = vec![[1, 0]; 8]);
    let stats = updated(4096, None, good).await.1[3].preference.unwrap();
    assert!(stats.reward_chosen > Some(0.0) && stats.reward_rejected.is_none(), "{stats:?}");
    // What is likelier after every prompt is no better for it.
    assert!(stats.shift > Some(0.0), "{stats:?}");
    let none = labeled(|batch| batch.pairs = vec![[1, 0], [0, 0], [7, 0]]);
    let policy = setup(&["p"]).start().policies()[0].clone();
    let error = policy.update(none).await.unwrap_err().to_string();
    assert!(error.contains("each reply of a pair has at least one"), "{error}");
}

#[test]
fn ranks_learn_the_same_from_labeled_replies() {
    let run = |ranks: Option<&Ranks>| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(updated(4096, ranks, labeled(|_| {})))
    };
    let alone = run(None).1;
    let both = on_ranks(2, |ranks| run(Some(&ranks)));
    assert_eq!(both[0].0, both[1].0);
    for (own, alone) in both[0].1.iter().zip(&alone) {
        assert!((own.loss - alone.loss).abs() < 1e-6, "{} {}", own.loss, alone.loss);
        assert!((own.grad_norm - alone.grad_norm).abs() < 1e-4 * alone.grad_norm);
    }
}

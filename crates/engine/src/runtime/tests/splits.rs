//! Updates of a policy by whole batches, by small micro-batches and by two ranks.

use super::*;
use crate::runtime::UpdateStats;
use maverl_dist::Ranks;
use ranks::testing::on_ranks;

/// Updates the policy of a runtime four times by a batch, on all ranks of a run or without any. Returns the fingerprint of the weights
/// and the statistics of each update.
pub(super) async fn updated(
    mut setup: Setup,
    tokens: usize,
    ranks: Option<&Ranks>,
    batch: Batch,
) -> (String, Vec<UpdateStats>) {
    setup.options.micro_batch_tokens = tokens.try_into().unwrap();
    let runtime = Runtime::start_on(&setup.workers, &setup.options, ranks).unwrap();
    let policy = runtime.policies()[0].clone();
    let mut stats = Vec::new();
    for _ in 0..4 {
        stats.push(policy.update(batch.clone()).await.unwrap());
    }
    if let Some(ranks) = ranks {
        ranks.channel(0).barrier().unwrap();
        ranks.leave();
    }
    (policy.fingerprint().await.unwrap(), stats)
}

/// Asserts that no split of a batch changes losses, norms of gradients or a measure of updates. Returns the statistics of whole
/// batches.
pub(super) fn updated_alike(
    batch: impl Fn() -> Batch + Sync,
    measure: impl Fn(&UpdateStats) -> f64,
) -> Vec<UpdateStats> {
    let run = |tokens, ranks: Option<&Ranks>| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(updated(setup(&["p"]), tokens, ranks, batch())).1
    };
    let (whole, parted) = (run(4096, None), run(16, None));
    let both = on_ranks(2, |ranks| run(4096, Some(&ranks)));
    for other in [&parted, &both[0], &both[1]] {
        for (own, whole) in other.iter().zip(&whole) {
            assert!((own.loss - whole.loss).abs() < 1e-5, "{} {}", own.loss, whole.loss);
            assert!((own.grad_norm - whole.grad_norm).abs() < 1e-4 * whole.grad_norm);
            assert!((measure(own) - measure(whole)).abs() < 1e-4);
        }
    }
    whole
}

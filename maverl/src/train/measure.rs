//! Updates, and the numbers of a step that are made from them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;

use crate::algo::GroupSummary;
use crate::metrics::{Metrics, by_seat};
use crate::rollout::Bill;
use crate::runtime::{Batch, Policy, UpdateStats, Work};
use crate::train::TrainError;
use crate::train::team::Team;
use crate::trajectory::Episode;

/// Updates each policy with its batch, at once where they do not share a worker, and measures what that did.
pub(super) async fn update(
    team: &Team<'_>,
    batches: Vec<(usize, Batch)>,
) -> Result<Metrics, TrainError> {
    let updates = batches.into_iter().map(async |(policy, batch)| {
        let policy = &team.policies[policy];
        let before = batch_metrics(policy.name(), &batch);
        (before, policy.name(), policy.update(batch).await)
    });
    let mut metrics = Metrics::default();
    for (before, policy, stats) in join_all(updates).await {
        metrics.extend(before);
        metrics.extend(update_metrics(policy, &stats?));
    }
    Ok(metrics)
}

fn batch_metrics(policy: &str, batch: &Batch) -> Metrics {
    let n = batch.rows.len().max(1) as f64;
    let values = || batch.rows.iter().map(|row| f64::from(row.advantage));
    let mean = values().sum::<f64>() / n;
    let variance = values().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
    named(policy, [("lr", batch.lr), ("adv_mean", mean), ("adv_std", variance.sqrt())])
}

fn update_metrics(policy: &str, stats: &UpdateStats) -> Metrics {
    let mut metrics = named(
        policy,
        [
            ("loss", stats.loss),
            ("pg_loss", stats.pg_loss),
            ("kl", stats.kl),
            ("entropy", stats.entropy),
            ("clip_frac_low", stats.clip_frac_low),
            ("clip_frac_high", stats.clip_frac_high),
            ("clip_frac_dual", stats.clip_frac_dual),
            ("ppo_kl", stats.ppo_kl),
            ("grad_norm", stats.grad_norm),
            ("optimizer_steps", stats.optimizer_steps as f64),
            ("rows", stats.rows as f64),
            ("tokens", stats.tokens as f64),
            ("version", stats.version as f64),
        ],
    );
    if let Some(weight) = stats.correction_mean {
        metrics.extend(named(policy, [("correction_mean", weight)]));
    }
    if let Some(pairs) = stats.preference {
        metrics.extend(named(
            policy,
            [
                ("reward_chosen", pairs.reward_chosen),
                ("reward_rejected", pairs.reward_rejected),
                ("reward_margin", pairs.reward_chosen - pairs.reward_rejected),
                ("pair_accuracy", pairs.accuracy),
            ],
        ));
    }
    metrics.set(format!("mismatch/{policy}/logp_abs_mean"), stats.mismatch_mean);
    metrics.set(format!("mismatch/{policy}/logp_abs_max"), stats.mismatch_max);
    metrics
}

fn named<const N: usize>(policy: &str, values: [(&str, f64); N]) -> Metrics {
    values.into_iter().map(|(name, value)| (format!("policy/{policy}/{name}"), value)).collect()
}

/// What the groups look like.
pub(super) fn groups(groups: &GroupSummary) -> Metrics {
    let values = [
        ("group/count", groups.count as f64),
        ("group/size_min", groups.size_min as f64),
        ("group/singletons", groups.singletons as f64),
        ("group/zero_std_frac", groups.zero_std_frac),
        ("group/all_good_frac", groups.all_good_frac),
        ("group/all_bad_frac", groups.all_bad_frac),
    ];
    values.into_iter().collect()
}

/// What the user is told about groups of one, if there are any.
pub(super) fn singletons(metrics: &Metrics) -> Option<String> {
    let n = metrics.get("group/singletons").filter(|n| *n > 0.0)?;
    let count = metrics.get("group/count")?;
    Some(format!(
        "{n} of {count} groups have one member, which has nothing to be compared with; `group/singletons` counts them \
         in every step"
    ))
}

/// Times and speeds of a step.
pub(super) fn timing(episodes: &[Episode], played: Duration, all: Duration) -> Metrics {
    let tokens: u64 = by_seat(episodes).values().map(|totals| totals.completion_tokens).sum();
    let (rollout, update) = (played.as_secs_f64(), (all - played).as_secs_f64());
    let speed = tokens as f64 / rollout.max(1e-9);
    let values = [
        ("time/rollout_s", rollout),
        ("time/update_s", update),
        ("perf/rollout_tokens_per_s", speed),
    ];
    values.into_iter().collect()
}

/// What outsiders were asked since `before`, and what that cost: another run may find them busier.
pub(super) fn outsiders(now: &BTreeMap<String, Bill>, before: &BTreeMap<String, Bill>) -> Metrics {
    let mut metrics = Metrics::default();
    for (name, bill) in now {
        let bill = *bill - before.get(name).copied().unwrap_or_default();
        let values = [
            ("requests", bill.requests as f64),
            ("failures", bill.failures as f64),
            ("prompt_tokens", bill.prompt_tokens as f64),
            ("completion_tokens", bill.completion_tokens as f64),
            ("cost", bill.cost),
        ];
        for (quantity, value) in values {
            metrics.set(format!("outsider/{name}/{quantity}"), value);
        }
    }
    metrics
}

/// What the policies have cost so far.
pub(super) fn work(policies: &[Policy]) -> Vec<Work> {
    policies.iter().map(Policy::work).collect()
}

/// What the policies have cost since `before`.
pub(super) fn engine(policies: &[Policy], before: &[Work]) -> Metrics {
    let mut metrics = Metrics::default();
    for (policy, before) in policies.iter().zip(before) {
        let work = policy.work() - *before;
        let values = [
            ("prefill_tokens", work.prefilled as f64),
            ("reused_tokens", work.reused as f64),
            ("preemptions", work.preempted as f64),
            ("decode_batch_mean", work.decode_batch()),
        ];
        for (quantity, value) in values {
            metrics.set(format!("engine/{}/{quantity}", policy.name()), value);
        }
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statistic_of_an_update_is_a_metric() {
        let stats = UpdateStats {
            clip_frac_dual: 0.25,
            mismatch_max: 1e-6,
            version: 3,
            ..UpdateStats::default()
        };
        let metrics = update_metrics("small", &stats);
        assert_eq!(metrics.get("policy/small/clip_frac_dual"), Some(0.25));
        assert_eq!(metrics.get("mismatch/small/logp_abs_max"), Some(1e-6));
        assert_eq!(metrics.iter().count(), 15);
    }
}

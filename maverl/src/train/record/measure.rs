//! Metrics of a step.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::algo::advantage::Compound;
use crate::algo::{GroupSummary, Sample, explained_variance};
use crate::metrics::{Metrics, by_seat};
use crate::plan::Plan;
use crate::rollout::EndpointUsage;
use crate::runtime::{
    Batch, EngineStats, Policy, RouterStats, ScaleStats, SharedTokens, UpdateStats, ValueStats,
};
use crate::train::record::spans::Span;
use crate::trajectory::Episode;

/// Times and speeds of a step in progress.
pub(crate) struct UpdateMeter<'p> {
    start: Instant,
    /// Duration of the rollout.
    rollout: Duration,
    policies: &'p [Policy],
    /// Statistics of engines and endpoints before the step.
    engines: Vec<EngineStats>,
    endpoints: BTreeMap<String, EndpointUsage>,
}

impl<'p> UpdateMeter<'p> {
    /// Starts a step.
    pub(crate) fn start(
        policies: &'p [Policy],
        endpoints: BTreeMap<String, EndpointUsage>,
    ) -> Self {
        let engines = policies.iter().map(Policy::work).collect();
        Self { start: Instant::now(), rollout: Duration::ZERO, policies, engines, endpoints }
    }

    /// Ends the rollout of the step, and returns its time.
    pub(crate) fn end_rollout(&mut self) -> Span {
        self.rollout = self.start.elapsed();
        Span::since("rollout", self.start)
    }

    /// Ends the step, and returns its times and speeds.
    pub(crate) fn stop(
        self,
        episodes: &[Episode],
        usage: &BTreeMap<String, EndpointUsage>,
    ) -> Metrics {
        let mut timing = timing(episodes, self.rollout, self.start.elapsed());
        timing.extend(engines(self.policies, &self.engines));
        timing.extend(endpoints(usage, &self.endpoints));
        timing
    }
}

/// Returns the mean of numbers; 0 of none.
pub(crate) fn mean_of<I: ExactSizeIterator<Item = f64>>(
    values: impl IntoIterator<Item = f64, IntoIter = I>,
) -> f64 {
    let values = values.into_iter();
    let n = values.len().max(1) as f64;
    values.sum::<f64>() / n
}

/// Returns the metrics of a policy's batch.
pub(crate) fn batch(policy: &str, batch: &Batch) -> Metrics {
    // Each row that is trained on has the same weight, whatever its length.
    let values = batch.trained_rows().map(|row| row.advantages.iter().map(|&v| f64::from(v)));
    let values: Vec<f64> = values.map(mean_of).collect();
    let mean = mean_of(values.iter().copied());
    let variance = mean_of(values.iter().map(|value| (value - mean).powi(2)));
    policy_metrics(policy, [("lr", batch.lr), ("adv_mean", mean), ("adv_std", variance.sqrt())])
}

/// Returns the metrics of an update.
pub(crate) fn update(policy: &str, stats: &UpdateStats) -> Metrics {
    let mut metrics = policy_metrics(
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
            ("optimizer_steps", stats.optimizer_steps as f64),
            ("rows", stats.rows as f64),
            ("tokens", stats.tokens as f64),
            ("version", stats.version as f64),
        ],
    );
    metrics.extend(policy_metrics(policy, shared_tokens(&stats.shared)));
    let steps = [stats.optimizer_steps, stats.skipped_steps];
    let norm = (stats.grad_norm, steps);
    metrics.extend(scaled_metrics(&format!("policy/{policy}"), norm, stats.loss_scale));
    for (name, value) in [
        ("correction_mean", stats.correction_mean),
        ("correction_kept", stats.correction_kept),
        ("off_policy_masked", stats.off_policy_masked),
        ("muon_rms", stats.muon_rms),
        ("select_kept", stats.select_kept),
        ("select_covariance", stats.select_covariance),
    ] {
        if let Some(value) = value {
            metrics.extend(policy_metrics(policy, [(name, value)]));
        }
    }
    metrics.extend(other_losses(policy, stats));
    if let Some(pairs) = stats.preference {
        let both = pairs.reward_chosen.zip(pairs.reward_rejected);
        for (name, value) in [
            ("reward_chosen", pairs.reward_chosen),
            ("reward_rejected", pairs.reward_rejected),
            ("reward_margin", both.map(|(chosen, rejected)| chosen - rejected)),
            ("pair_accuracy", Some(pairs.accuracy)),
            ("kto_shift", pairs.shift),
        ] {
            if let Some(value) = value {
                metrics.extend(policy_metrics(policy, [(name, value)]));
            }
        }
    }
    if let Some(routers) = &stats.routers {
        metrics.extend(router_metrics(policy, routers));
    }
    metrics.set(format!("mismatch/{policy}/logp_abs_mean"), stats.mismatch_mean);
    metrics.set(format!("mismatch/{policy}/logp_abs_max"), stats.mismatch_max);
    metrics
}

/// Returns the norm of a critic's gradient, and the metrics of the scale of its loss.
pub(crate) fn critic_norm(subject: &str, stats: &ValueStats) -> Metrics {
    let norm = (stats.grad_norm, [stats.optimizer_steps, stats.skipped_steps]);
    scaled_metrics(subject, norm, stats.loss_scale)
}

/// Returns the norm of the gradient, and the metrics of the scale of the loss. The norm has the numbers of optimizer steps that
/// were taken and skipped: it is left out if all were skipped.
fn scaled_metrics(
    subject: &str,
    (norm, [taken, skipped]): (f64, [u64; 2]),
    scale: Option<ScaleStats>,
) -> Metrics {
    let mut metrics = Metrics::default();
    if taken > 0 || skipped == 0 {
        metrics.extend(metrics_below(subject, [("grad_norm", norm)]));
    }
    if let Some(ScaleStats { scale, skipped }) = scale {
        let values = [("loss_scale", scale), ("skipped_steps", skipped as f64)];
        metrics.extend(metrics_below(subject, values));
    }
    metrics
}

/// Returns the metrics of the divergence from teachers, and of the likelihood of observations.
fn other_losses(policy: &str, stats: &UpdateStats) -> Metrics {
    let mut metrics = Metrics::default();
    if let Some(taught) = stats.divergence {
        let values = [("divergence", taught.mean), ("mass", taught.mass)];
        metrics.extend(metrics_below(&format!("distill/{policy}"), values));
    }
    if let Some(observed) = stats.observations {
        let values =
            [("observation_nll", observed.nll), ("observation_tokens", observed.tokens as f64)];
        metrics.extend(policy_metrics(policy, values));
    }
    metrics
}

/// Returns the metrics of the loads of experts.
fn router_metrics(policy: &str, routers: &RouterStats) -> Metrics {
    let mut metrics =
        metrics_below(&format!("moe/{policy}"), [("balance_loss", routers.balance_loss)]);
    for load in &routers.layers {
        let values = [
            ("load_max", load.load_max),
            ("router_entropy", load.router_entropy),
            ("dead_experts", load.dead_experts as f64),
        ];
        let subject = format!("moe/{policy}/layer_{}", load.layer);
        metrics.extend(metrics_below(&subject, values));
        if let Some(share) = load.replay_changed {
            metrics.extend(metrics_below(&subject, [("replay_changed", share)]));
        }
    }
    metrics
}

/// Returns the metrics of a critic's batch and of its update.
pub(crate) fn critic(policy: &str, lr: f64, stats: &ValueStats) -> Metrics {
    let values = [
        ("lr", lr),
        ("loss", stats.loss),
        ("clip_frac", stats.clip_frac),
        ("optimizer_steps", stats.optimizer_steps as f64),
        ("rows", stats.rows as f64),
        ("values", stats.values as f64),
    ];
    let subject = format!("critic/{policy}");
    let mut metrics = metrics_below(&subject, values);
    metrics.extend(critic_norm(&subject, stats));
    if let Some(shared) = &stats.shared {
        metrics.extend(metrics_below(&subject, shared_tokens(shared)));
    }
    metrics
}

/// Returns the metrics of tokens that rows or texts share.
fn shared_tokens(tokens: &SharedTokens) -> [(&'static str, f64); 4] {
    [
        ("tokens_whole", tokens.whole as f64),
        ("tokens_computed", tokens.computed as f64),
        ("share", tokens.share),
        ("recomputed", tokens.recomputed),
    ]
}

/// Returns the metrics of the factors on a policy's advantages, from policies that were updated before it.
pub(crate) fn factors(policy: &str, compound: &Compound, episodes: &[usize]) -> Metrics {
    let all: Vec<f64> = episodes.iter().map(|&episode| compound.of(episode)).collect();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(0.0, f64::max);
    let mean = mean_of(all);
    policy_metrics(policy, [("factor_mean", mean), ("factor_min", least), ("factor_max", most)])
}

/// Returns metrics that compare predicted values with returns.
pub(crate) fn values(
    plan: &Plan,
    samples: &[Sample],
    values: &[Vec<f64>],
    returns: &[Vec<f64>],
) -> Metrics {
    let mut metrics = Metrics::default();
    for (host, policy) in plan.policies.iter().enumerate() {
        let its = samples.iter().map(|sample| plan.critic_of(sample.policy) == Some(host));
        let its: Vec<bool> = its.collect();
        let [values, returns] = [values, returns].map(|all| {
            let its = all.iter().zip(&its).filter(|(_, its)| **its);
            its.flat_map(|(values, _)| values.clone()).collect::<Vec<f64>>()
        });
        if values.is_empty() {
            continue;
        }
        let explained = explained_variance(&values, &returns);
        let found = [
            ("value_mean", mean_of(values)),
            ("return_mean", mean_of(returns)),
            ("explained_variance", explained),
        ];
        metrics.extend(metrics_below(&format!("critic/{}", policy.name), found));
    }
    metrics
}

fn policy_metrics<const N: usize>(policy: &str, values: [(&str, f64); N]) -> Metrics {
    metrics_below(&format!("policy/{policy}"), values)
}

pub(super) fn metrics_below<const N: usize>(subject: &str, values: [(&str, f64); N]) -> Metrics {
    values.into_iter().map(|(name, value)| (format!("{subject}/{name}"), value)).collect()
}

/// Returns the metrics of the groups.
pub(crate) fn groups(groups: &GroupSummary) -> Metrics {
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

/// Returns the warning about groups of one episode, if there are any.
pub(crate) fn singletons(metrics: &Metrics) -> Option<String> {
    let n = metrics.get("group/singletons").filter(|n| *n > 0.0)?;
    let count = metrics.get("group/count")?;
    Some(format!(
        "{n} of {count} groups have one member, which has nothing to be compared with; `group/singletons` counts them \
         in every step"
    ))
}

/// Returns times and speeds of a step.
fn timing(episodes: &[Episode], played: Duration, all: Duration) -> Metrics {
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

/// Returns the usage of endpoints since `before`. It is not reproducible, since endpoints may be more or less busy.
fn endpoints(
    now: &BTreeMap<String, EndpointUsage>,
    before: &BTreeMap<String, EndpointUsage>,
) -> Metrics {
    let mut metrics = Metrics::default();
    for (name, usage) in now {
        let usage = *usage - before.get(name).copied().unwrap_or_default();
        let values = [
            ("requests", usage.requests as f64),
            ("failures", usage.failures as f64),
            ("uncounted", usage.uncounted as f64),
            ("prompt_tokens", usage.prompt_tokens as f64),
            ("completion_tokens", usage.completion_tokens as f64),
            ("cost", usage.cost),
        ];
        metrics.extend(metrics_below(&format!("endpoint/{name}"), values));
    }
    metrics
}

/// Returns the metrics of the policies' engines since `before`.
fn engines(policies: &[Policy], before: &[EngineStats]) -> Metrics {
    let mut metrics = Metrics::default();
    for (policy, before) in policies.iter().zip(before) {
        let work = policy.work() - *before;
        let values = [
            ("prefill_tokens", work.prefilled as f64),
            ("reused_tokens", work.reused as f64),
            ("preemptions", work.preempted as f64),
            ("decode_batch_mean", work.decode_batch()),
        ];
        metrics.extend(metrics_below(&format!("engine/{}", policy.name()), values));
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::LayerLoad;

    #[test]
    fn every_statistic_of_an_update_is_a_metric() {
        let stats = UpdateStats {
            clip_frac_dual: 0.25,
            mismatch_max: 1e-6,
            version: 3,
            ..UpdateStats::default()
        };
        let metrics = update("small", &stats);
        assert_eq!(metrics.get("policy/small/clip_frac_dual"), Some(0.25));
        assert_eq!(metrics.get("mismatch/small/logp_abs_max"), Some(1e-6));
        assert_eq!(metrics.iter().count(), 19);
    }

    #[test]
    fn a_step_that_was_skipped_has_a_scale_of_the_loss_and_no_norm() {
        let loss_scale = Some(ScaleStats { scale: 32_768.0, skipped: 4 });
        for (steps, norm) in [([0, 2], None), ([1, 1], Some(0.5))] {
            let [optimizer_steps, skipped_steps] = steps;
            let policy = UpdateStats {
                grad_norm: 0.5,
                optimizer_steps,
                skipped_steps,
                loss_scale,
                ..UpdateStats::default()
            };
            let own = ValueStats {
                grad_norm: 0.5,
                optimizer_steps,
                skipped_steps,
                loss_scale,
                ..ValueStats::default()
            };
            let found = [("policy", update("p", &policy)), ("critic", critic("p", 0.1, &own))];
            for (subject, metrics) in found {
                let metric = |name: &str| metrics.get(&format!("{subject}/p/{name}"));
                assert_eq!(metric("grad_norm"), norm);
                assert_eq!(metric("loss_scale"), Some(32_768.0));
                assert_eq!(metric("skipped_steps"), Some(4.0));
            }
        }
    }

    #[test]
    fn every_layer_with_experts_has_metrics_of_its_load() {
        let load = LayerLoad {
            layer: 2,
            load_max: 1.5,
            router_entropy: 0.5,
            dead_experts: 3,
            replay_changed: Some(0.25),
        };
        let routers = Some(RouterStats { balance_loss: 2.5, layers: vec![load] });
        let metrics = update("small", &UpdateStats { routers, ..UpdateStats::default() });
        for (name, value) in [
            ("balance_loss", 2.5),
            ("layer_2/load_max", 1.5),
            ("layer_2/router_entropy", 0.5),
            ("layer_2/replay_changed", 0.25),
            ("layer_2/dead_experts", 3.0),
        ] {
            assert_eq!(metrics.get(&format!("moe/small/{name}")), Some(value));
        }
        assert_eq!(metrics.iter().count(), 24);
    }
}

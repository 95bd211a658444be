//! What an algorithm carries from step to step beside weights and moments. Part of every checkpoint.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::algo::advantage::EmaBaseline;
use crate::algo::loss::AdaptiveKl;
use crate::metrics::Metrics;
use crate::plan::{AdaptiveKlPlan, Plan};

/// The name of the metric that says what the KL in the reward is, in the mean over tokens.
pub(super) const REWARD_KL: &str = "reward_kl";

/// What an algorithm remembers; nothing where no part of it has to.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AlgorithmState {
    /// What each seat earned so far: `baseline = "moving_average"`.
    pub(super) averages: EmaBaseline,
    /// What each policy's `kl_coef` is multiplied by: `adaptive_kl`.
    kl_scale: BTreeMap<String, f64>,
}

impl AlgorithmState {
    /// What the `kl_coef` of a policy is multiplied by.
    pub(super) fn kl_scale(&self, policy: &str) -> f64 {
        self.kl_scale.get(policy).copied().unwrap_or(1.0)
    }

    /// Lets the coefficients seek their target, by the numbers of an update. Gives the coefficients' scales.
    pub(super) fn seek(&mut self, plan: &Plan, update: &Metrics) -> Metrics {
        let AdaptiveKlPlan { target, horizon } = plan.algorithm.adaptive_kl;
        let mut metrics = Metrics::default();
        if target == 0.0 {
            return metrics;
        }
        for policy in plan.policies.iter().filter(|policy| policy.reference) {
            let of = |quantity: &str| update.get(&format!("policy/{}/{quantity}", policy.name));
            let (Some(kl), Some(rows)) = (of(REWARD_KL).or_else(|| of("kl")), of("rows")) else {
                continue;
            };
            let scale = self.kl_scale(&policy.name);
            let next = AdaptiveKl { target, horizon }.next(scale, kl, rows as usize);
            metrics.set(format!("policy/{}/kl_scale", policy.name), next);
            self.kl_scale.insert(policy.name.clone(), next);
        }
        metrics
    }
}

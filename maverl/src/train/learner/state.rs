//! State of an algorithm in addition to weights and moments. It is part of every checkpoint.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::algo::GroupBuffer;
use crate::algo::advantage::{EmaBaseline, RewardSpread};
use crate::data::SolveRates;
use crate::metrics::Metrics;
use crate::plan::Plan;
use crate::train::learner::live::Live;

/// Name of the metric of the KL in the reward, averaged over tokens.
pub(crate) const REWARD_KL: &str = "reward_kl";

/// File of the state of a verifier in a checkpoint.
pub(crate) const VERIFIER: &str = "verifier.json";

/// State of an algorithm; empty if no part of it is stateful.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AlgorithmState {
    /// Moving average of each seat's reward: `baseline = "moving_average"`.
    pub(crate) averages: EmaBaseline,
    /// Spread of the rewards so far: `whiten`.
    pub(crate) rewards: RewardSpread,
    /// Multiplier of each policy's `kl_coef`: `adaptive_kl`.
    kl_scale: BTreeMap<String, f64>,
    /// Controller of each policy's `entropy_coef`: `adaptive_entropy`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    entropy: BTreeMap<String, EntropyState>,
    /// Replies of each policy's opponent in the steps of the iteration that are left, as token ids: `spin`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) opponents: BTreeMap<String, BTreeMap<u64, Vec<Vec<u32>>>>,
    /// Solve rates of tasks: `task.curriculum`.
    #[serde(skip_serializing_if = "SolveRates::is_empty")]
    pub(crate) solve_rates: SolveRates,
    /// Groups that may be replayed: `replay`.
    #[serde(skip_serializing_if = "GroupBuffer::is_empty")]
    pub(crate) replay: GroupBuffer,
    /// Values of verifiers that wait to be compared with the judgement of the environment.
    #[serde(skip_serializing_if = "Live::is_empty")]
    pub(crate) live: Live,
}

/// State of the controller of an entropy coefficient.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct EntropyState {
    coefficient: f64,
    /// Entropy of the step before.
    entropy: f64,
}

/// State of a verifier beside its weights, which an export needs too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct VerifierRecord {
    /// Divisor of logits, fitted to the validation rows.
    pub(crate) temperature: f64,
    /// Offset of what results.
    pub(crate) offset: f64,
    /// Keys of the questions that were trained on.
    pub(crate) tasks: BTreeSet<String>,
}

impl AlgorithmState {
    /// Returns the multiplier of a policy's `kl_coef`.
    pub(crate) fn kl_scale(&self, policy: &str) -> f64 {
        self.kl_scale.get(policy).copied().unwrap_or(1.0)
    }

    /// Returns the entropy coefficient that a policy has in the next step, and that of its controller; `None` without a controller.
    pub(crate) fn entropy_coefs(&self, plan: &Plan, policy: usize) -> Option<[f64; 2]> {
        let adaptive = plan.algorithm.adaptive_entropy;
        if adaptive.target == 0.0 {
            return None;
        }
        let state = self.entropy.get(&plan.policies[policy].name);
        let mut seats = plan.seats.iter().filter(|seat| seat.trained && seat.policy == policy);
        let start = seats.next().map_or(0.0, |seat| f64::from(seat.loss.entropy_coef));
        let coefficient = state.map_or(start, |state| state.coefficient);
        Some([adaptive.applied(coefficient, state.map(|state| state.entropy)), coefficient])
    }

    /// Adapts the entropy coefficients by the metrics of an update, and returns those that it had.
    pub(crate) fn seek_entropy(&mut self, plan: &Plan, update: &Metrics) -> Metrics {
        let mut metrics = Metrics::default();
        for (index, policy) in plan.policies.iter().enumerate() {
            let entropy = update.get(&format!("policy/{}/entropy", policy.name));
            let coefficients = self.entropy_coefs(plan, index);
            let (Some(entropy), Some([applied, coefficient])) = (entropy, coefficients) else {
                continue;
            };
            metrics.set(format!("policy/{}/entropy_coef", policy.name), applied);
            let coefficient = plan.algorithm.adaptive_entropy.next(coefficient, entropy);
            self.entropy.insert(policy.name.clone(), EntropyState { coefficient, entropy });
        }
        metrics
    }

    /// Adapts the KL coefficients to their target by the metrics of an update, and returns the new multipliers.
    pub(crate) fn seek(&mut self, plan: &Plan, update: &Metrics) -> Metrics {
        let adaptive = plan.algorithm.adaptive_kl;
        let mut metrics = Metrics::default();
        if adaptive.target == 0.0 {
            return metrics;
        }
        for policy in plan.policies.iter().filter(|policy| policy.reference) {
            let [in_reward, kl, rows] = [REWARD_KL, "kl", "rows"]
                .map(|quantity| update.get(&format!("policy/{}/{quantity}", policy.name)));
            let (Some(kl), Some(rows)) = (in_reward.or(kl), rows) else { continue };
            let scale = self.kl_scale(&policy.name);
            let next = adaptive.next(scale, kl, rows as usize);
            metrics.set(format!("policy/{}/kl_scale", policy.name), next);
            self.kl_scale.insert(policy.name.clone(), next);
        }
        metrics
    }
}

//! Statistics of updates.
//!
//! A new statistic of updates is a field here, its sum over optimizer steps in `trainer/totals.rs`, and its name in
//! `train/record/measure.rs` of `maverl`.

use serde::{Deserialize, Serialize};

use super::TokenColumns;
use super::loss_scale::ScaleStats;
use super::pass::PassTokens;

/// Statistics of an update. Means are over true token counts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct UpdateStats {
    /// Loss, mean over optimizer steps.
    pub loss: f64,
    /// Surrogate part of the loss (or the negative log-likelihood).
    pub pg_loss: f64,
    /// KL to the reference by the configured estimator, mean over the tokens that have one; 0 without reference.
    pub kl: f64,
    /// Entropy in nats, mean over tokens.
    pub entropy: f64,
    /// Share of tokens whose ratio was clipped from below.
    pub clip_frac_low: f64,
    /// Share of tokens whose ratio was clipped from above.
    pub clip_frac_high: f64,
    /// Share of tokens whose ratio was clipped by the dual bound.
    pub clip_frac_dual: f64,
    /// Mean of logp_old - logp (k1 to the rollout policy).
    pub ppo_kl: f64,
    /// Gradient norm before clipping, mean over optimizer steps; 0 without any.
    pub grad_norm: f64,
    /// Mean of |trainer log-prob - rollout log-prob| over the tokens seen before the first optimizer step.
    pub mismatch_mean: f64,
    /// Maximum of |trainer log-prob - rollout log-prob| over the same tokens.
    pub mismatch_max: f64,
    /// Mean weight of a token, if the mismatch of the sampler's log-probs is corrected.
    pub correction_mean: Option<f64>,
    /// Share of tokens with a weight above 0, if a correction is a [`Mask`](crate::loss::Correction::Mask).
    pub correction_kept: Option<f64>,
    /// Share of tokens without a surrogate because their row is off policy, if a row has such a mask.
    pub off_policy_masked: Option<f64>,
    /// Share of the tokens that are trained on without a penalty, if tokens are selected.
    pub select_kept: Option<f64>,
    /// Mean covariance of log-probs and advantages over the tokens of a minibatch, if tokens are selected by it.
    pub select_covariance: Option<f64>,
    /// Root mean square of the updates of matrices before the learning rate, in the last optimizer step with Muon.
    pub muon_rms: Option<f64>,
    /// Divergence from teachers, if rows have some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divergence: Option<DivergenceStats>,
    /// Likelihood of observations, if the batch has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observations: Option<ObservationStats>,
    /// Statistics of preference pairs.
    pub preference: Option<PairStats>,
    /// Number of optimizer steps.
    pub optimizer_steps: u64,
    /// Number of optimizer steps that were skipped, because a gradient overflowed in f16.
    #[serde(default)]
    pub skipped_steps: u64,
    /// Scale of the loss after the update, with products in f16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<ScaleStats>,
    /// Number of rows.
    pub rows: u64,
    /// Number of completion tokens.
    pub tokens: u64,
    /// Tokens that the rows share.
    pub shared: SharedTokens,
    /// Version of the policy after the update.
    pub version: u64,
    /// Loads of experts, if the model has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routers: Option<RouterStats>,
    /// Quantities of each token, if the batch asks for them.
    #[serde(skip)]
    pub columns: Option<TokenColumns>,
}

/// Tokens of the rows of an update, or of the texts of a critic's. What several begin with is computed once. Sums over optimizer
/// steps, without passes that compute log-probs alone.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SharedTokens {
    /// Sum of the lengths of the rows.
    pub whole: u64,
    /// Tokens that were computed.
    pub computed: u64,
    /// Share of the tokens that were not computed: 1 - computed / whole.
    pub share: f64,
    /// Tokens that were computed, over those of each minibatch once. It is 1 if no common beginning is cut by micro-batches or
    /// ranks.
    pub recomputed: f64,
}

impl From<PassTokens> for SharedTokens {
    fn from(PassTokens { whole, once, computed }: PassTokens) -> Self {
        let share = 1.0 - computed as f64 / whole.max(1) as f64;
        Self { whole, computed, share, recomputed: computed as f64 / once.max(1) as f64 }
    }
}

/// Loads of the experts of a model. Each token counts for each row that has it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RouterStats {
    /// Loss that balances the load, without its coefficient: E Σ f P over the tokens of all layers, mean over optimizer steps. It
    /// is the number of experts of a token if the load is even.
    pub balance_loss: f64,
    /// Layers with experts.
    pub layers: Vec<LayerLoad>,
}

/// Load of the experts of a layer during an update.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LayerLoad {
    /// Number of the layer.
    pub layer: usize,
    /// Choices of the most loaded expert over those of an even load: from 1 to the number of experts over that of a token.
    pub load_max: f64,
    /// Mean entropy of the router's probabilities, in nats.
    pub router_entropy: f64,
    /// Number of experts that no token chose.
    pub dead_experts: u64,
    /// Share of the tokens with experts of the sampler for which the router would have chosen others; `None` without such tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_changed: Option<f64>,
}

/// Means over the tokens with a teacher, in all optimizer steps.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct DivergenceStats {
    /// Divergence from the teacher in nats.
    pub mean: f64,
    /// Probability of the teacher's most probable tokens under the policy.
    pub mass: f64,
}

/// Likelihood of the observations of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ObservationStats {
    /// Negative log-likelihood of a token, mean over their tokens in all optimizer steps.
    pub nll: f64,
    /// Number of their tokens.
    pub tokens: u64,
}

/// Means over pairs of replies, or over replies with a label (KTO), each before its optimizer step.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PairStats {
    /// Implicit reward of the better or good replies: beta times the sum of their log-ratios to the reference. `None` without any.
    pub reward_chosen: Option<f64>,
    /// Implicit reward of the worse or bad replies.
    pub reward_rejected: Option<f64>,
    /// Share of pairs in which the better reply has the higher implicit reward; of good replies whose log-ratio is above z₀ and bad
    /// ones whose is below.
    pub accuracy: f64,
    /// z₀ of replies with a label: [`kto_shift`](crate::loss::kto_shift).
    pub shift: Option<f64>,
}

/// Statistics of a critic's update. Means are over values.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ValueStats {
    /// Value loss, mean over optimizer steps, in squared units of the normalization. 0 where gradients are given.
    pub loss: f64,
    /// Share of values that moved further than the clip since the update began.
    pub clip_frac: f64,
    /// Gradient norm before clipping, mean over optimizer steps.
    pub grad_norm: f64,
    /// Number of optimizer steps.
    pub optimizer_steps: u64,
    /// Number of optimizer steps that were skipped, because a gradient overflowed in f16.
    #[serde(default)]
    pub skipped_steps: u64,
    /// Scale of the loss after the update, with products in f16; `None` of a critic on the policy's trunk, whose scale is the
    /// policy's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<ScaleStats>,
    /// Number of texts.
    pub rows: u64,
    /// Number of values.
    pub values: u64,
    /// Tokens that the texts share; `None` of a critic on the policy's trunk, whose texts are the policy's rows.
    pub shared: Option<SharedTokens>,
    /// Weight and bias of a head of log-probs after the update.
    pub likelihood: Option<[f32; 2]>,
}

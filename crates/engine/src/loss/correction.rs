//! Correction of the mismatch between the log-probs of rollout and trainer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::token::at_most;
use crate::settings::Settings;

/// Correction of tokens whose log-prob differs between sampler and trainer.
#[derive(Debug, Clone, Copy, PartialEq, Settings)]
#[settings(crate = crate)]
pub enum Correction {
    /// Nothing: the ratio is to the sampler's.
    #[setting(default)]
    None,
    /// Tokens are weighted by their ratio, within bounds.
    Truncate(TruncateOptions),
    /// Tokens whose ratio is outside of bounds are masked.
    Mask(MaskOptions),
    /// Tokens whose ratio is outside `[1 / cap, cap]` are masked: short for a mask of tokens with `keep = "one"`.
    MaskTokens(CapOptions),
    /// Rows whose geometric mean ratio is outside `[1 / cap, cap]` are masked: short for a mask of means with `keep = "one"`.
    MaskSequences(CapOptions),
}

/// Truncated importance sampling.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent", crate = crate)]
pub struct TruncateOptions {
    /// Unit of the ratio of the trainer's to the sampler's probability: each token (`token`), or the reply, with the geometric
    /// mean (`mean`) or the product (`product`) of its tokens' ratios; `max` is only for `mask`.
    pub of: CorrectionUnit,
    /// Lower bound of the weight.
    #[setting(default = 0.0, range = 0.0..=1.0)]
    pub low: f64,
    /// Upper bound of the weight.
    #[setting(default = 2.0, range = 1.0..)]
    pub high: f64,
    /// Another name of `high`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(range = above(1.0).., example = "2.0")]
    pub cap: Option<f64>,
}

/// Masks by the importance ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent", crate = crate)]
pub struct MaskOptions {
    /// Unit that is masked: each token (`token`), or the reply, by the geometric mean (`mean`) or the product (`product`) of
    /// its tokens' ratios, or if any of its tokens is outside of the bounds (`max`).
    pub of: CorrectionUnit,
    /// Quantity that the bounds are of: the ratio (`ratio`), or an estimate of the divergence, `k2` or `k3`.
    pub measure: CorrectionMeasure,
    /// Lower bound of the ratio.
    #[setting(default = 0.5, range = 0.0..=1.0, idle_when = "measure = ['k2', 'k3']")]
    pub low: f64,
    /// Upper bound of the measure.
    #[setting(default = 5.0, range = above(0.0)..)]
    pub high: f64,
    /// Weight within the bounds: the ratio of the unit (`ratio`), or 1 (`one`).
    pub keep: KeptWeight,
}

/// Masks by the importance ratio, with one bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent", crate = crate)]
pub struct CapOptions {
    /// Upper bound of the ratio of the trainer's to the sampler's probability; the lower bound is its inverse.
    #[setting(default = 2.0, range = above(1.0)..)]
    pub cap: f64,
}

/// Unit of the ratio of a [`Correction`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CorrectionUnit {
    /// Each token.
    #[default]
    Token,
    /// The reply: the geometric mean over its tokens.
    Mean,
    /// The reply: the product over its tokens.
    Product,
    /// The reply: its tokens one by one, all of which are within the bounds of a mask, or the reply is masked.
    Max,
}

/// Quantity of a token that a mask bounds, of its ratio `r`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CorrectionMeasure {
    /// r
    #[default]
    Ratio,
    /// (log r)² / 2
    K2,
    /// r - 1 - log r
    K3,
}

/// Weight of what a mask keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeptWeight {
    /// The ratio of the unit; with [`CorrectionUnit::Max`], that of each token.
    #[default]
    Ratio,
    /// 1
    One,
}

/// Computes the weight of each token of a row, `[T]`, from the log-probs of the trainer before its update and of the
/// sampler. The weights of several corrections are multiplied.
///
/// ```text
/// r = exp(logp_trainer − logp_rollout)
/// R = r (token, max), exp(mean of log r over the row) (mean), exp(sum of log r over the row) (product)
///
/// truncate         w = min(max(R, low), high)
/// mask             w = R or 1 if low ≤ R ≤ high, else 0      max: for all tokens of the row
///                  k2 = ½ log² r, k3 = r − 1 − log r: in place of R the value, its mean or its sum over the row, ≤ high
/// mask_tokens      mask of tokens, low = 1 / cap, high = cap, keep 1
/// mask_sequences   mask of means, low = 1 / cap, high = cap, keep 1
/// ```
///
/// The truncation is from [Your efficient RL framework secretly brings you off-policy RL training]. A mask of tokens that
/// keeps the ratio is IcePop ([2510.18855]), with 0.5 and 5 as bounds.
///
/// # Panics
///
/// If the lengths differ.
///
/// [Your efficient RL framework secretly brings you off-policy RL training]: https://fengyao.notion.site/off-policy-rl
/// [2510.18855]: https://arxiv.org/abs/2510.18855
pub fn correction_weights(
    corrections: &[Correction],
    trainer: &[f32],
    rollout: &[f32],
) -> Vec<f64> {
    assert_eq!(trainer.len(), rollout.len(), "correction_weights: one log-prob of each per token");
    let log_ratios = trainer.iter().zip(rollout).map(|(t, r)| f64::from(*t) - f64::from(*r));
    let log_ratios: Vec<f64> = log_ratios.collect();
    let mut weights = vec![1.0; trainer.len()];
    for correction in corrections {
        let own = correction.weights(&log_ratios);
        weights.iter_mut().zip(own).for_each(|(weight, own)| *weight *= own);
    }
    weights
}

impl Correction {
    /// Returns the weight of each token of a row, `[T]`.
    fn weights(self, log_ratios: &[f64]) -> Vec<f64> {
        match self {
            Self::None => vec![1.0; log_ratios.len()],
            Self::Truncate(truncate) => truncate.weights(log_ratios),
            Self::Mask(mask) => mask.weights(log_ratios),
            Self::MaskTokens(mask) => mask.weights(log_ratios, CorrectionUnit::Token),
            Self::MaskSequences(mask) => mask.weights(log_ratios, CorrectionUnit::Mean),
        }
    }
}

impl TruncateOptions {
    fn weights(&self, log_ratios: &[f64]) -> Vec<f64> {
        let high = self.cap.unwrap_or(self.high);
        let ratios = self.of.values(log_ratios).into_iter().map(libm::exp);
        ratios.map(|ratio| at_least(at_most(ratio, high), self.low)).collect()
    }
}

impl MaskOptions {
    fn weights(&self, log_ratios: &[f64]) -> Vec<f64> {
        let bounds = match self.measure {
            CorrectionMeasure::Ratio => [libm::log(self.low), libm::log(self.high)],
            CorrectionMeasure::K2 | CorrectionMeasure::K3 => [f64::NEG_INFINITY, self.high],
        };
        let measured: Vec<f64> = log_ratios.iter().map(|&x| self.measure.of_token(x)).collect();
        let kept = self.of.within_bounds(&measured, bounds);
        let weights = self.of.values(log_ratios).into_iter().map(|log_ratio| match self.keep {
            KeptWeight::Ratio => libm::exp(log_ratio),
            KeptWeight::One => 1.0,
        });
        kept.into_iter()
            .zip(weights)
            .map(|(kept, weight)| if kept { weight } else { 0.0 })
            .collect()
    }
}

impl CapOptions {
    /// Returns 1 for each token within the bounds, else 0.
    fn weights(self, log_ratios: &[f64], of: CorrectionUnit) -> Vec<f64> {
        let bound = libm::log(self.cap);
        let kept = of.within_bounds(log_ratios, [-bound, bound]);
        kept.into_iter().map(f64::from).collect()
    }
}

impl CorrectionMeasure {
    /// Returns the measure of a token, that of the ratio on the scale of its logarithm.
    fn of_token(self, log_ratio: f64) -> f64 {
        match self {
            Self::Ratio => log_ratio,
            Self::K2 => log_ratio * log_ratio / 2.0,
            Self::K3 => libm::expm1(log_ratio) - log_ratio,
        }
    }
}

impl CorrectionUnit {
    /// Returns the value of the unit of each token, `[T]`.
    fn values(self, tokens: &[f64]) -> Vec<f64> {
        let n = tokens.len();
        match self {
            Self::Token | Self::Max => tokens.to_vec(),
            Self::Mean => vec![tokens.iter().sum::<f64>() / n.max(1) as f64; n],
            Self::Product => vec![tokens.iter().sum::<f64>(); n],
        }
    }

    /// Returns true for each token whose unit is within bounds. What is not a number is not.
    fn within_bounds(self, tokens: &[f64], [low, high]: [f64; 2]) -> Vec<bool> {
        let values = self.values(tokens).into_iter();
        let within: Vec<bool> = values.map(|value| low <= value && value <= high).collect();
        match self {
            Self::Max => vec![within.iter().all(|within| *within); tokens.len()],
            Self::Token | Self::Mean | Self::Product => within,
        }
    }
}

/// The larger of both; what is not a number stays so, unlike in [`f64::max`].
fn at_least(x: f64, bound: f64) -> f64 {
    if x < bound { bound } else { x }
}

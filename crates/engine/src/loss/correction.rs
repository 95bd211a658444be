//! Correction of the mismatch between the log-probs of rollout and trainer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::surrogate::at_most;
use crate::settings::Settings;

/// Correction of tokens whose log-prob differs between sampler and trainer.
#[derive(Debug, Clone, Copy, PartialEq, Settings)]
#[settings(crate = crate)]
pub enum Correction {
    /// Nothing: the ratio is to the sampler's.
    #[setting(default)]
    None,
    /// Each token is weighted by its ratio, at most `cap`.
    Truncate(TruncateOptions),
    /// Tokens whose ratio is outside `[1 / cap, cap]` are masked.
    MaskTokens(MaskOptions),
    /// Rows whose geometric mean ratio is outside `[1 / cap, cap]` are masked.
    MaskSequences(MaskOptions),
}

/// Truncated importance sampling.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent", crate = crate)]
pub struct TruncateOptions {
    /// Upper bound of the ratio of the trainer's to the sampler's probability.
    #[setting(default = 2.0, range = above(1.0)..)]
    pub cap: f64,
}

/// Masks by the importance ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent", crate = crate)]
pub struct MaskOptions {
    /// Upper bound of the ratio of the trainer's to the sampler's probability; the lower bound is its inverse.
    #[setting(default = 2.0, range = above(1.0)..)]
    pub cap: f64,
}

/// Computes the weight of each token of a row, `[T]`, from the log-probs of the trainer before its update and of the
/// sampler.
///
/// ```text
/// r = exp(logp_trainer − logp_rollout)
/// truncate         w = min(r, cap)
/// mask_tokens      w = 1 if 1 / cap ≤ r ≤ cap else 0
/// mask_sequences   the same, of exp(mean of log r over the row)
/// ```
///
/// The truncation is from [Your efficient RL framework secretly brings you off-policy RL training].
///
/// Deviations:
///
/// - `mask_tokens` masks the tokens that IcePop ([2510.18855]) masks, with `1 / cap` and `cap` as bounds, but tokens within
///   the bounds have weight 1; IcePop weights them by r.
/// - `mask_sequences` also has weight 1 within its bounds, where sequence-level masks of other libraries keep the ratio.
///
/// # Panics
///
/// If the lengths differ.
///
/// [Your efficient RL framework secretly brings you off-policy RL training]: https://fengyao.notion.site/off-policy-rl
/// [2510.18855]: https://arxiv.org/abs/2510.18855
pub fn correction_weights(correction: Correction, trainer: &[f32], rollout: &[f32]) -> Vec<f64> {
    assert_eq!(trainer.len(), rollout.len(), "correction_weights: one log-prob of each per token");
    let ratios = trainer.iter().zip(rollout).map(|(t, r)| f64::from(*t) - f64::from(*r));
    match correction {
        Correction::None => vec![1.0; trainer.len()],
        Correction::Truncate(TruncateOptions { cap }) => {
            ratios.map(|log_ratio| at_most(libm::exp(log_ratio), cap)).collect()
        }
        Correction::MaskTokens(mask) => ratios.map(|log_ratio| mask.weight(log_ratio)).collect(),
        Correction::MaskSequences(mask) => {
            let mean = ratios.sum::<f64>() / trainer.len().max(1) as f64;
            vec![mask.weight(mean); trainer.len()]
        }
    }
}

impl MaskOptions {
    /// Returns 1 for a ratio within the bounds, else 0.
    fn weight(self, log_ratio: f64) -> f64 {
        f64::from(u8::from(log_ratio.abs() <= libm::log(self.cap)))
    }
}

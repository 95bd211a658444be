//! Correction of the mismatch between the log-probs of rollout and trainer.

use super::surrogate::at_most;

/// Correction of tokens whose log-prob differs between sampler and trainer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Correction {
    /// None: the ratio is to the sampler's probability.
    #[default]
    None,
    /// Each token is weighted by its ratio, up to the cap.
    Truncate,
    /// Tokens whose ratio is outside `[1 / cap, cap]` have weight 0.
    MaskTokens,
    /// Rows whose mean ratio is outside `[1 / cap, cap]` have weight 0.
    MaskSequences,
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
pub fn correction_weights(
    correction: Correction,
    cap: f64,
    trainer: &[f32],
    rollout: &[f32],
) -> Vec<f64> {
    assert_eq!(trainer.len(), rollout.len(), "correction_weights: one log-prob of each per token");
    let ratios = || trainer.iter().zip(rollout).map(|(t, r)| f64::from(*t) - f64::from(*r));
    let within = |log_ratio: f64| f64::from(u8::from(log_ratio.abs() <= cap.ln()));
    match correction {
        Correction::None => vec![1.0; trainer.len()],
        Correction::Truncate => ratios().map(|log_ratio| at_most(log_ratio.exp(), cap)).collect(),
        Correction::MaskTokens => ratios().map(within).collect(),
        Correction::MaskSequences => {
            let mean = ratios().sum::<f64>() / trainer.len().max(1) as f64;
            vec![within(mean); trainer.len()]
        }
    }
}

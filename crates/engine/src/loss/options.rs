//! Coefficients of the losses.

use super::{BuiltinSurrogate, Correction, Kl, Ratio};

/// Coefficients of the policy-gradient loss of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct LossOptions {
    /// Surrogate loss of a token.
    pub surrogate: BuiltinSurrogate,
    /// Unit of the importance ratio.
    pub ratio: Ratio,
    /// Coefficient of the KL to the reference; 0 omits the term.
    pub kl_coef: f32,
    /// Estimator of that KL.
    pub kl: Kl,
    /// True to weight the KL of a token by its ratio.
    pub kl_corrected: bool,
    /// Coefficient of the drift term, which pulls the policy towards the sampling policy.
    pub drift_coef: f32,
    /// Coefficient of the entropy bonus.
    pub entropy_coef: f32,
    /// Corrections of differences between the log-probs of sampler and trainer; their weights are multiplied.
    pub correction: Vec<Correction>,
    /// Mean of `logp_sampler − logp` over a row, above which its tokens with a negative advantage have no surrogate; 0 masks
    /// none.
    pub off_policy_mask: f64,
}

impl LossOptions {
    /// Returns true if any correction has an effect.
    #[doc(hidden)]
    pub fn is_corrected(&self) -> bool {
        self.correction.iter().any(|correction| *correction != Correction::None)
    }

    /// Returns true if a correction is a mask that may keep the ratio.
    pub(crate) fn has_mask(&self) -> bool {
        self.correction.iter().any(|correction| matches!(correction, Correction::Mask(_)))
    }
}

impl Default for LossOptions {
    /// Returns the clipped surrogate of PPO with a dual clip, and no other term.
    fn default() -> Self {
        Self {
            surrogate: BuiltinSurrogate::default(),
            ratio: Ratio::Token,
            kl_coef: 0.0,
            kl: Kl::K3,
            kl_corrected: false,
            drift_coef: 0.0,
            entropy_coef: 0.0,
            correction: Vec::new(),
            off_policy_mask: 0.0,
        }
    }
}

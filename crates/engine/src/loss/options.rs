//! Coefficients of the losses.

use super::surrogate::{cispo, clipped_surrogate, cpgd, sapo};
use super::{Clipped, Correction, Kl, PolicyToken, Preference, Surrogate};

/// Coefficients of the policy-gradient loss of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
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
    /// Correction of differences between the log-probs of sampler and trainer.
    pub correction: Correction,
    /// Maximum ratio of the trainer's to the sampler's probability; its inverse is the minimum.
    pub correction_cap: f64,
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
            correction: Correction::None,
            correction_cap: 2.0,
        }
    }
}

/// Unit of the importance ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Ratio {
    /// Each token.
    #[default]
    Token,
    /// The whole row: the geometric mean over its tokens (GSPO).
    Sequence,
    /// The whole row: the product over its tokens (RLOO).
    Product,
}

/// Surrogates of this crate, with their parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum BuiltinSurrogate {
    /// [`clipped_surrogate`]: the clipped ratio (PPO).
    Clip {
        /// Lower clip of the ratio: `1 − low`.
        low: f32,
        /// Upper clip of the ratio: `1 + high`.
        high: f32,
        /// Bound of the surrogate for negative advantages, above 1.
        dual: f32,
    },
    /// [`cispo`]: the log-probability, weighted by the clipped ratio.
    Cispo {
        /// Upper clip of the ratio: `1 + high`.
        high: f32,
    },
    /// [`sapo`]: a soft gate of the ratio.
    Sapo {
        /// Steepness of the gate for positive and negative advantages.
        gate: (f64, f64),
    },
    /// [`cpgd`]: the clipped log-ratio.
    Cpgd {
        /// Lower clip of the ratio: `1 − low`.
        low: f32,
        /// Upper clip of the ratio: `1 + high`.
        high: f32,
    },
}

impl Default for BuiltinSurrogate {
    fn default() -> Self {
        Self::Clip { low: 0.2, high: 0.2, dual: 3.0 }
    }
}

impl Surrogate for BuiltinSurrogate {
    fn loss(&self, token: &PolicyToken) -> Clipped {
        let PolicyToken { logp, log_ratio, advantage } = *token;
        match *self {
            Self::Clip { low, high, dual } => {
                clipped_surrogate(log_ratio, advantage, (low.into(), high.into(), dual.into()))
            }
            Self::Cispo { high } => cispo(logp, log_ratio, advantage, high.into()),
            Self::Sapo { gate } => sapo(log_ratio, advantage, gate),
            Self::Cpgd { low, high } => cpgd(log_ratio, advantage, (low.into(), high.into())),
        }
    }
}

/// Loss of pairs of replies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PreferenceOptions {
    /// Loss of a pair.
    pub loss: Preference,
    /// Strength of the KL constraint to the reference: less is weaker.
    pub beta: f64,
    /// True to compare with nothing instead of the starting weights.
    pub reference_free: bool,
}

impl Default for PreferenceOptions {
    /// Returns the loss of DPO with `beta = 0.1`.
    fn default() -> Self {
        Self { loss: Preference::Sigmoid { smoothing: 0.0 }, beta: 0.1, reference_free: false }
    }
}

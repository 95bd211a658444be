//! Coefficients of the losses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::surrogate::{cispo, clipped_surrogate, cpgd, sapo};
use super::{
    Clipped, Correction, DppoOptions, DroOptions, GmpoOptions, Kl, LossUnit, PolicyReply,
    PolicyToken, ReinforceOptions, ReplyLoss, Surrogate, VespoOptions,
};
use crate::settings::Settings;

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

/// Unit of the importance ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ratio {
    /// Each token.
    #[default]
    Token,
    /// The whole reply: the geometric mean over its tokens (GSPO).
    Sequence,
    /// The whole reply: the product over its tokens (RLOO).
    Product,
    /// The whole reply, as with `Sequence`; each token has its own advantage and gradient (GSPO-token).
    SequenceToken,
}

/// Surrogates of this crate, with their parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum BuiltinSurrogate {
    /// [`clipped_surrogate`]: the clipped ratio (PPO).
    Clip(ClipOptions),
    /// [`cispo`]: the log-probability, weighted by the clipped ratio.
    Cispo(CispoOptions),
    /// [`sapo`]: a soft gate of the ratio.
    Sapo(SapoOptions),
    /// [`cpgd`]: the clipped log-ratio.
    Cpgd(CpgdOptions),
    /// [`gmpo`](super::gmpo): the geometric mean of clipped ratios.
    Gmpo(GmpoOptions),
    /// [`vespo`](super::vespo): the log-probability, weighted by a smooth function of the reply's ratio.
    Vespo(VespoOptions),
    /// [`dppo`](super::dppo): the log-probability, weighted by the ratio, within a distance of probabilities.
    Dppo(DppoOptions),
    /// [`dro`](super::dro): the log-probability, and a quadratic pull.
    Dro(DroOptions),
    /// [`reinforce`](super::reinforce): the log-probability.
    Reinforce(ReinforceOptions),
}

impl Default for BuiltinSurrogate {
    fn default() -> Self {
        Self::Clip(ClipOptions::default())
    }
}

impl BuiltinSurrogate {
    /// Returns the surrogate itself.
    fn surrogate(&self) -> &dyn Surrogate {
        match self {
            Self::Clip(options) => options,
            Self::Cispo(options) => options,
            Self::Sapo(options) => options,
            Self::Cpgd(options) => options,
            Self::Gmpo(options) => options,
            Self::Vespo(options) => options,
            Self::Dppo(options) => options,
            Self::Dro(options) => options,
            Self::Reinforce(options) => options,
        }
    }
}

impl Surrogate for BuiltinSurrogate {
    fn loss(&self, token: &PolicyToken) -> Clipped {
        self.surrogate().loss(token)
    }

    fn reply(&self, reply: &PolicyReply<'_>, slopes: &mut [f64]) -> ReplyLoss {
        self.surrogate().reply(reply, slopes)
    }

    fn unit(&self) -> LossUnit {
        self.surrogate().unit()
    }

    fn ratio_bounds(&self) -> Option<[f64; 2]> {
        self.surrogate().ratio_bounds()
    }

    fn needs_token_ratio(&self) -> bool {
        self.surrogate().needs_token_ratio()
    }
}

/// The clipped ratio (PPO). arXiv:1707.06347, eq. 7; arXiv:1912.09729, eq. 8
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent", crate = crate)]
pub struct ClipOptions {
    /// Lower clip: the ratio is at least 1 minus this number.
    #[setting(default = 0.2, range = above(0.0)..=1.0)]
    pub clip_low: f64,
    /// Upper clip: the ratio is at most 1 plus this number.
    #[setting(default = 0.2, range = above(0.0)..)]
    pub clip_high: f64,
    /// Dual clip: upper bound of the ratio for tokens with a negative advantage; above 1.
    #[setting(default = 3.0, range = above(1.0)..)]
    pub clip_dual: f64,
}

impl Surrogate for ClipOptions {
    fn loss(&self, token: &PolicyToken) -> Clipped {
        let bounds = (single(self.clip_low), single(self.clip_high), single(self.clip_dual));
        clipped_surrogate(token.log_ratio, token.advantage, bounds)
    }

    fn ratio_bounds(&self) -> Option<[f64; 2]> {
        Some([1.0 - self.clip_low, 1.0 + self.clip_high])
    }
}

/// The log-probability, weighted by the clipped ratio (CISPO). arXiv:2506.13585
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent", crate = crate)]
pub struct CispoOptions {
    /// Upper clip: the ratio is at most 1 plus this number.
    #[setting(default = 4.0, range = above(0.0)..)]
    pub clip_high: f64,
}

impl Surrogate for CispoOptions {
    fn loss(&self, token: &PolicyToken) -> Clipped {
        cispo(token.logp, token.log_ratio, token.advantage, single(self.clip_high))
    }

    fn needs_token_ratio(&self) -> bool {
        true
    }
}

/// A soft gate of the ratio (SAPO). arXiv:2511.20347
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent", crate = crate)]
pub struct SapoOptions {
    /// Steepness of the gate for positive and negative advantages.
    #[setting(default = (1.0, 1.05), range = above(0.0)..)]
    pub gate: (f64, f64),
}

impl Surrogate for SapoOptions {
    fn loss(&self, token: &PolicyToken) -> Clipped {
        sapo(token.log_ratio, token.advantage, self.gate)
    }
}

/// The clipped log-ratio (CPGD). arXiv:2505.12504
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent", crate = crate)]
pub struct CpgdOptions {
    /// Lower clip: the ratio is at least 1 minus this number.
    #[setting(default = 0.2, range = above(0.0)..=1.0)]
    pub clip_low: f64,
    /// Upper clip: the ratio is at most 1 plus this number.
    #[setting(default = 0.2, range = above(0.0)..)]
    pub clip_high: f64,
}

impl Surrogate for CpgdOptions {
    fn loss(&self, token: &PolicyToken) -> Clipped {
        let bounds = (single(self.clip_low), single(self.clip_high));
        cpgd(token.log_ratio, token.advantage, bounds)
    }
}

/// Rounds a bound of the ratio to single precision, in which recorded losses have it.
fn single(bound: f64) -> f64 {
    f64::from(bound as f32)
}

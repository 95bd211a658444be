//! Surrogate losses of a token or of a whole reply, as functions of `log ρ = logp − logp_old`.
//!
//! Derivatives are with respect to `log ρ`, which for a token's ratio is `∂/∂logp`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::token::{at_most, ratio};
use super::{
    Clip, Clipped, DppoOptions, DroOptions, GmpoOptions, LossUnit, PolicyReply, PolicyToken,
    ReinforceOptions, ReplyLoss, Surrogate, Term, VespoOptions,
};
use crate::settings::Settings;

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

    fn averages_advantages(&self) -> bool {
        self.surrogate().averages_advantages()
    }
}

/// Computes the clipped surrogate with a dual bound.
///
/// ```text
/// ρ = exp(log ρ)
/// L = max(−A·ρ, −A·clip(ρ, 1 − low, 1 + high))
/// L = min(L, −A·dual)                             where A < 0
/// ```
///
/// PPO ([1707.06347] eq. 7) with separate bounds (DAPO, [2503.14476] eq. 8) and the dual clip ([1912.09729] eq. 8).
/// With `dual ≥ 1 + high` this is also the two-sided clipping of INTELLECT-2 ([2505.07291]), with `dual` as its δ.
///
/// - `log ρ` is cut at 20, where `ρ` is far outside every clip: neither value nor gradient changes.
///
/// [1707.06347]: https://arxiv.org/abs/1707.06347
/// [2503.14476]: https://arxiv.org/abs/2503.14476
/// [1912.09729]: https://arxiv.org/abs/1912.09729
/// [2505.07291]: https://arxiv.org/abs/2505.07291
pub fn clipped_surrogate(
    log_ratio: f64,
    advantage: f64,
    (low, high, dual): (f64, f64, f64),
) -> Clipped {
    let ratio = ratio(log_ratio);
    if advantage > 0.0 && ratio > 1.0 + high {
        Clipped::cut_at(-advantage * (1.0 + high), Clip::High)
    } else if advantage < 0.0 && ratio < 1.0 - low {
        Clipped::cut_at(-advantage * (1.0 - low), Clip::Low)
    } else if advantage < 0.0 && ratio > dual {
        Clipped::cut_at(-advantage * dual, Clip::Dual)
    } else {
        Clipped::free(-advantage * ratio, -advantage * ratio)
    }
}

/// Computes the surrogate of CISPO: the weight of a token is clipped, its gradient never is.
///
/// ```text
/// L = −sg(min(ρ, 1 + high)) · A · logp                 sg: stop-gradient
/// ```
///
/// MiniMax-M1, [2506.13585]. A ratio above the bound counts as [`Clip::High`], although its token still has a gradient.
///
/// [2506.13585]: https://arxiv.org/abs/2506.13585
pub fn cispo(logp: f64, log_ratio: f64, advantage: f64, high: f64) -> Clipped {
    let ratio = ratio(log_ratio);
    let weight = at_most(ratio, 1.0 + high);
    let term = Term { value: -weight * advantage * logp, grad: -weight * advantage };
    Clipped { term, clip: (ratio > weight).then_some(Clip::High) }
}

/// Computes the surrogate of SAPO: a soft gate in place of the clip.
///
/// ```text
/// L = −A · (4 / τ) · sigmoid(τ · (ρ − 1))              τ = positive where A > 0, else negative
/// ```
///
/// [2511.20347]. On policy its gradient is that of the clipped surrogate; it decays with the distance from the sampling
/// policy.
///
/// [2511.20347]: https://arxiv.org/abs/2511.20347
pub fn sapo(log_ratio: f64, advantage: f64, (positive, negative): (f64, f64)) -> Clipped {
    let tau = if advantage > 0.0 { positive } else { negative };
    let ratio = ratio(log_ratio);
    let gate = 1.0 / (1.0 + libm::exp(-tau * (ratio - 1.0)));
    let grad = -advantage * 4.0 * gate * (1.0 - gate) * ratio;
    Clipped::free(-advantage * 4.0 / tau * gate, grad)
}

/// Computes the surrogate of CPGD: it clips the log-ratio, so no ratio can grow.
///
/// ```text
/// L = −A · min(log ρ, log(1 + high))                   where A > 0
/// L = −A · max(log ρ, log(1 − low))                    else
/// ```
///
/// [2505.12504]; the constant `−A · logp_old` is omitted. It is used with [`policy_drift`](super::policy_drift).
///
/// [2505.12504]: https://arxiv.org/abs/2505.12504
pub fn cpgd(log_ratio: f64, advantage: f64, (low, high): (f64, f64)) -> Clipped {
    let (floor, ceiling) = (libm::log1p(-low), libm::log1p(high));
    if advantage > 0.0 && log_ratio > ceiling {
        Clipped::cut_at(-advantage * ceiling, Clip::High)
    } else if advantage < 0.0 && log_ratio < floor {
        Clipped::cut_at(-advantage * floor, Clip::Low)
    } else {
        Clipped::free(-advantage * log_ratio, -advantage)
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

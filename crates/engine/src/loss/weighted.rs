//! Surrogates whose gradient is that of the log-prob, times a weight.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::token::{at_most, ratio};
use super::{Clip, Clipped, PolicyToken, Surrogate};
use crate::settings::Settings;

/// Largest weight of a token by [`dppo`].
const WEIGHT_MAX: f64 = 20.0;

/// Largest probability in a divergence: the log-prob of a certain token rounds to 0.
const PROBABILITY_MAX: f64 = 1.0 - 1e-9;

/// Computes the surrogate of DPPO: a token that has gone too far from the sampling policy, in the direction of its advantage, has
/// no gradient. The distance is of probabilities, not of their ratio.
///
/// ```text
/// tv   d = |π − μ|                                          π, μ: probabilities now and at sampling
/// kl   d = μ log(μ / π) + (1 − μ) log((1 − μ) / (1 − π))
///
/// L = 0                              where A > 0, π > μ, d > high, or A < 0, π < μ, d > low
/// L = −sg(min(ρ, 20)) · A · logp     else                   sg: stop-gradient
/// ```
///
/// [2602.04879]: the trust region of total variation, and of the KL of taking the token or not.
///
/// [2602.04879]: https://arxiv.org/abs/2602.04879
pub fn dppo(token: &PolicyToken, by: Divergence, [low, high]: [f64; 2]) -> Clipped {
    let PolicyToken { logp, log_ratio, advantage } = *token;
    let distance = by.of_token(logp, log_ratio);
    if advantage > 0.0 && log_ratio > 0.0 && distance > high {
        return Clipped::cut_at(0.0, Clip::High);
    }
    if advantage < 0.0 && log_ratio < 0.0 && distance > low {
        return Clipped::cut_at(0.0, Clip::Low);
    }
    let weight = at_most(ratio(log_ratio), WEIGHT_MAX);
    Clipped::free(-weight * advantage * logp, -weight * advantage)
}

/// Computes the surrogate of DRO: the log-prob, and a quadratic pull towards the sampling policy.
///
/// ```text
/// L = −(A · logp − β/2 · log² ρ)
/// ```
///
/// [2405.19107], with advantages in place of rewards minus a value.
///
/// [2405.19107]: https://arxiv.org/abs/2405.19107
pub fn dro(token: &PolicyToken, beta: f64) -> Clipped {
    let PolicyToken { logp, log_ratio, advantage } = *token;
    let value = beta / 2.0 * log_ratio * log_ratio - advantage * logp;
    Clipped::free(value, beta * log_ratio - advantage)
}

/// Computes the surrogate of REINFORCE: the log-prob, without a ratio.
///
/// ```text
/// L = −A · logp
/// ```
///
/// Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning", 1992; GPG,
/// [2504.02546] eq. 5.
///
/// [2504.02546]: https://arxiv.org/abs/2504.02546
pub fn reinforce(token: &PolicyToken) -> Clipped {
    Clipped::free(-token.advantage * token.logp, -token.advantage)
}

/// Distance of the probabilities of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Divergence {
    /// Total variation: the difference of the probabilities.
    #[default]
    Tv,
    /// KL of two events: the token, and all others.
    Kl,
}

impl Divergence {
    fn of_token(self, logp: f64, log_ratio: f64) -> f64 {
        let [now, old] = [logp, logp - log_ratio].map(libm::exp);
        match self {
            Self::Tv => (now - old).abs(),
            Self::Kl => {
                let [now, old] = [now, old].map(|p| at_most(p, PROBABILITY_MAX));
                (1.0 - old) * (libm::log1p(-old) - libm::log1p(-now)) - old * log_ratio
            }
        }
    }

    /// Bound of the distance, where none is written.
    const fn bound(self) -> f64 {
        match self {
            Self::Tv => 0.2,
            Self::Kl => 0.05,
        }
    }
}

/// The log-probability, weighted by the ratio; none of tokens whose probability has changed too much (DPPO). arXiv:2602.04879
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent", crate = crate)]
pub struct DppoOptions {
    /// Distance from the sampling policy: the difference of the probabilities of a token (`tv`), or the KL of two outcomes, this
    /// token or any other (`kl`).
    pub by: Divergence,
    /// Largest distance of a token with a negative advantage; the default is 0.2 with `by = "tv"`, and 0.05 with `"kl"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(range = above(0.0).., example = "0.2")]
    pub low: Option<f64>,
    /// The same with a positive advantage.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(range = above(0.0).., example = "0.2")]
    pub high: Option<f64>,
}

impl Surrogate for DppoOptions {
    fn loss(&self, token: &PolicyToken) -> Clipped {
        dppo(token, self.by, [self.low, self.high].map(|own| own.unwrap_or(self.by.bound())))
    }

    fn needs_token_ratio(&self) -> bool {
        true
    }
}

/// The log-probability, and a quadratic pull towards the sampling policy (DRO). arXiv:2405.19107
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent", crate = crate)]
pub struct DroOptions {
    /// Coefficient of the pull.
    #[setting(default = 0.1, range = 0.0..)]
    pub pull_coef: f64,
}

impl Surrogate for DroOptions {
    fn loss(&self, token: &PolicyToken) -> Clipped {
        dro(token, self.pull_coef)
    }
}

/// The log-probability, without a ratio (REINFORCE, GPG). arXiv:2504.02546
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent", crate = crate)]
pub struct ReinforceOptions {}

impl Surrogate for ReinforceOptions {
    fn loss(&self, token: &PolicyToken) -> Clipped {
        reinforce(token)
    }

    /// It has no ratio: one of the reply would only scale the loss.
    fn needs_token_ratio(&self) -> bool {
        true
    }
}

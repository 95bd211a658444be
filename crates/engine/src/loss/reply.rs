//! Loss of a reply: tokens one by one or with a ratio of the whole reply, and surrogates that see the reply as a whole.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::token::{LOG_RATIO_MAX, at_most, ratio};
use super::{Clip, Clipped, LossUnit, PolicyToken, Surrogate};
use crate::settings::Settings;

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

/// A reply, whose loss a [`Surrogate`](super::Surrogate) computes. All slices are `[T]`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct PolicyReply<'a> {
    /// Log-probs now.
    pub logp: &'a [f64],
    /// `logp − logp_old`, where `logp_old` is of the policy that sampled.
    pub log_ratio: &'a [f64],
    /// Advantages.
    pub advantages: &'a [f64],
    /// Weights of the tokens in the loss: those of the aggregation, times those of corrections.
    pub weights: &'a [f64],
    /// Unit of the importance ratio, which [`token_losses`](Self::token_losses) computes.
    pub ratio: Ratio,
}

/// Loss of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ReplyLoss {
    /// The weighted loss, `Σ wₜ · Lₜ`.
    pub value: f64,
    /// Number of tokens that reached each bound: `[low, high, dual]`.
    pub clipped: [u64; 3],
}

impl ReplyLoss {
    /// Counts tokens at a bound.
    pub fn count(&mut self, clip: Option<Clip>, tokens: u64) {
        match clip {
            Some(Clip::Low) => self.clipped[0] += tokens,
            Some(Clip::High) => self.clipped[1] += tokens,
            Some(Clip::Dual) => self.clipped[2] += tokens,
            None => {}
        }
    }
}

impl<'a> PolicyReply<'a> {
    /// Creates a reply with the ratio of each token.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn new(
        logp: &'a [f64],
        log_ratio: &'a [f64],
        advantages: &'a [f64],
        weights: &'a [f64],
    ) -> Self {
        let lengths = [log_ratio.len(), advantages.len(), weights.len()];
        assert!(lengths.iter().all(|&n| n == logp.len()), "PolicyReply: {lengths:?}");
        Self { logp, log_ratio, advantages, weights, ratio: Ratio::Token }
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.logp.len()
    }

    /// True if there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.logp.is_empty()
    }

    /// Sum of the weights.
    pub fn weight(&self) -> f64 {
        self.weights.iter().sum()
    }

    /// Mean advantage; if all tokens have the same, that advantage without rounding.
    pub fn advantage(&self) -> f64 {
        let first = self.advantages.first().copied().unwrap_or(0.0);
        let above: f64 = self.advantages.iter().map(|advantage| advantage - first).sum();
        first + above / self.len().max(1) as f64
    }

    /// Computes the loss of a reply from that of a token, at the level of its [`ratio`](Self::ratio). Writes the derivative of
    /// the weighted loss by each log-prob to `slopes [T]`.
    ///
    /// ```text
    /// token            log ρₜ = logpₜ − logp_oldₜ
    /// sequence         log ρ  = mean over the reply                          GSPO, 2507.18071 eq. 7
    /// product          log ρ  = sum over the reply                           RLOO, 2402.14740 §2
    /// sequence_token   ρₜ = sg(ρ) · πₜ / sg(πₜ), log ρ = mean over the reply     GSPO-token, 2507.18071 eq. 14
    /// ```
    ///
    /// With `sequence` and `product`, every token has the surrogate of the mean advantage, whose derivative reaches every
    /// token. With `sequence_token` each token has its own advantage and its own derivative.
    pub fn token_losses(
        &self,
        loss: &dyn Fn(&PolicyToken) -> Clipped,
        slopes: &mut [f64],
    ) -> ReplyLoss {
        match self.ratio {
            Ratio::Token => self.each_token(loss, self.log_ratio, slopes),
            Ratio::SequenceToken => {
                let mean = self.log_ratio.iter().sum::<f64>() / self.len().max(1) as f64;
                self.each_token(loss, &vec![mean; self.len()], slopes)
            }
            Ratio::Sequence => self.whole_reply(loss, 1.0 / self.len().max(1) as f64, slopes),
            Ratio::Product => self.whole_reply(loss, 1.0, slopes),
        }
    }

    fn each_token(
        &self,
        loss: &dyn Fn(&PolicyToken) -> Clipped,
        log_ratio: &[f64],
        slopes: &mut [f64],
    ) -> ReplyLoss {
        let mut sums = ReplyLoss::default();
        for (t, slope) in slopes.iter_mut().enumerate() {
            let (logp, log_ratio) = (self.logp[t], log_ratio[t]);
            let found = loss(&PolicyToken { logp, log_ratio, advantage: self.advantages[t] });
            *slope = self.weights[t] * found.term.grad;
            sums.value += self.weights[t] * found.term.value;
            sums.count(found.clip, 1);
        }
        sums
    }

    fn whole_reply(
        &self,
        loss: &dyn Fn(&PolicyToken) -> Clipped,
        share: f64,
        slopes: &mut [f64],
    ) -> ReplyLoss {
        let logp = share * self.logp.iter().sum::<f64>();
        let log_ratio = share * self.log_ratio.iter().sum::<f64>();
        let found = loss(&PolicyToken { logp, log_ratio, advantage: self.advantage() });
        let weight = self.weight();
        slopes.fill(weight * found.term.grad * share);
        let mut sums = ReplyLoss { value: weight * found.term.value, ..ReplyLoss::default() };
        sums.count(found.clip, self.len() as u64);
        sums
    }
}

/// Computes the surrogate of GMPO: the geometric mean of the clipped ratios of a reply. Writes the derivative of the weighted
/// loss by each log-prob to `slopes [T]`.
///
/// ```text
/// xₜ = min(log ρₜ, high)            where A > 0
/// xₜ = max(log ρₜ, −low)            else
/// L  = −A · exp(mean of xₜ)         one value for the reply; A: the mean advantage
/// ```
///
/// [2507.20673] eq. 4, whose bounds are of `ρ`: exp(±0.4). A token at its bound has no gradient.
///
/// [2507.20673]: https://arxiv.org/abs/2507.20673
pub fn gmpo(reply: &PolicyReply<'_>, [low, high]: [f64; 2], slopes: &mut [f64]) -> ReplyLoss {
    let (n, advantage) = (reply.len().max(1) as f64, reply.advantage());
    let mut sums = ReplyLoss::default();
    let mut total = 0.0;
    for (slope, &log_ratio) in slopes.iter_mut().zip(reply.log_ratio) {
        let (bounded, clip) = if advantage > 0.0 && log_ratio > high {
            (high, Some(Clip::High))
        } else if advantage < 0.0 && log_ratio < -low {
            (-low, Some(Clip::Low))
        } else {
            (log_ratio, None)
        };
        *slope = if clip.is_some() { 0.0 } else { 1.0 };
        total += bounded;
        sums.count(clip, 1);
    }
    sums.value = -advantage * ratio(total / n) * reply.weight();
    slopes.iter_mut().for_each(|slope| *slope *= sums.value / n);
    sums
}

/// Computes the surrogate of VESPO: the log-prob of each token, weighted by a smooth function of the ratio of the whole reply.
/// Writes the derivative of the weighted loss by each log-prob to `slopes [T]`.
///
/// ```text
/// w  = Π ρₜ
/// φ  = exp(λ + k · log w − λ · w)              1 on policy; k, λ: the first ones where A ≥ 0, else the second ones
/// Lₜ = −sg(φ) · A · logpₜ                      A: the mean advantage; sg: stop-gradient
/// ```
///
/// [2602.10693].
///
/// [2602.10693]: https://arxiv.org/abs/2602.10693
pub fn vespo(
    reply: &PolicyReply<'_>,
    (k, lambda): ((f64, f64), (f64, f64)),
    slopes: &mut [f64],
) -> ReplyLoss {
    let advantage = reply.advantage();
    let (k, lambda) = if advantage < 0.0 { (k.1, lambda.1) } else { (k.0, lambda.0) };
    let log_ratio: f64 = reply.log_ratio.iter().sum();
    let gate =
        libm::exp(lambda + k * at_most(log_ratio, LOG_RATIO_MAX) - lambda * ratio(log_ratio));
    let mut sums = ReplyLoss::default();
    for (t, slope) in slopes.iter_mut().enumerate() {
        *slope = -reply.weights[t] * gate * advantage;
        sums.value += *slope * reply.logp[t];
    }
    sums
}

/// The geometric mean of the clipped ratios of a reply (GMPO). arXiv:2507.20673
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent", crate = crate)]
pub struct GmpoOptions {
    /// Lower clip: the log-ratio of a token is at least minus this number.
    #[setting(default = 0.4, range = above(0.0)..)]
    pub clip_low: f64,
    /// Upper clip: the log-ratio of a token is at most this number.
    #[setting(default = 0.4, range = above(0.0)..)]
    pub clip_high: f64,
}

impl Surrogate for GmpoOptions {
    fn loss(&self, token: &PolicyToken) -> Clipped {
        of_one_token(self, token)
    }

    fn reply(&self, reply: &PolicyReply<'_>, slopes: &mut [f64]) -> ReplyLoss {
        gmpo(reply, [self.clip_low, self.clip_high], slopes)
    }

    fn unit(&self) -> LossUnit {
        LossUnit::Reply
    }

    fn ratio_bounds(&self) -> Option<[f64; 2]> {
        Some([libm::exp(-self.clip_low), libm::exp(self.clip_high)])
    }

    fn needs_token_ratio(&self) -> bool {
        true
    }

    fn averages_advantages(&self) -> bool {
        true
    }
}

/// The log-probability, weighted by a smooth function of the ratio of the reply (VESPO). arXiv:2602.10693
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent", crate = crate)]
pub struct VespoOptions {
    /// Power of the ratio for positive and negative advantages.
    #[setting(default = (2.0, 3.0), range = 0.0..)]
    pub k: (f64, f64),
    /// Rate of the decay with the ratio for positive and negative advantages.
    #[setting(default = (3.0, 2.0), range = 0.0..)]
    pub lambda: (f64, f64),
}

impl Surrogate for VespoOptions {
    fn loss(&self, token: &PolicyToken) -> Clipped {
        of_one_token(self, token)
    }

    fn reply(&self, reply: &PolicyReply<'_>, slopes: &mut [f64]) -> ReplyLoss {
        vespo(reply, (self.k, self.lambda), slopes)
    }

    fn needs_token_ratio(&self) -> bool {
        true
    }

    fn averages_advantages(&self) -> bool {
        true
    }
}

/// Returns the loss of a reply of one token.
fn of_one_token(surrogate: &dyn Surrogate, token: &PolicyToken) -> Clipped {
    let (logp, log_ratio, advantage) = ([token.logp], [token.log_ratio], [token.advantage]);
    let mut slope = [0.0];
    let reply = PolicyReply::new(&logp, &log_ratio, &advantage, &[1.0]);
    let found = surrogate.reply(&reply, &mut slope);
    let clip = match found.clipped {
        [1, ..] => Some(Clip::Low),
        [_, 1, _] => Some(Clip::High),
        _ => None,
    };
    Clipped { clip, ..Clipped::free(found.value, slope[0]) }
}

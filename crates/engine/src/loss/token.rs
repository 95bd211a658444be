//! Loss of a token: the trait of surrogates, and its values.

use super::{PolicyReply, ReplyLoss};

/// A surrogate: the loss of a token for its advantage, or with [`reply`](Self::reply) that of a whole reply.
///
/// With a [`Ratio`](super::Ratio) of the whole row, `loss` is called once for each row, with the mean or the sum over its
/// tokens. In `maverl`, `#[surrogate]` declares one.
pub trait Surrogate: Send + Sync + 'static {
    /// Loss and derivative with respect to `logp`.
    ///
    /// `log_ratio = logp − logp_old` moves with `logp`, one to one; everything else is constant.
    fn loss(&self, token: &PolicyToken) -> Clipped;

    /// Computes the weighted loss of a reply, `Σ wₜ · Lₜ`, and writes its derivative by each log-prob to `slopes [T]`.
    ///
    /// The default calls [`loss`](Self::loss) at the level of the reply's ratio ([`PolicyReply::token_losses`]). `slopes` has an
    /// element for each token.
    fn reply(&self, reply: &PolicyReply<'_>, slopes: &mut [f64]) -> ReplyLoss {
        reply.token_losses(&|token| self.loss(token), slopes)
    }

    /// Returns what the aggregation counts: tokens, or with a loss that has one value for a reply, replies.
    fn unit(&self) -> LossUnit {
        LossUnit::Token
    }

    /// Returns the bounds of the ratio beyond which a token has no gradient, the lower one for negative advantages and the
    /// upper one for positive ones. The viewer shows them. `None` if the surrogate does not clip the ratio.
    fn ratio_bounds(&self) -> Option<[f64; 2]> {
        None
    }

    /// Returns true if the loss makes sense for the ratio of a token only, not for that of a row.
    fn needs_token_ratio(&self) -> bool {
        false
    }

    /// Returns true if the loss of a reply takes the mean of its tokens' advantages. `check` warns where tokens have their own.
    fn averages_advantages(&self) -> bool {
        false
    }
}

/// Unit that an aggregation counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LossUnit {
    /// Tokens, by the [`Aggregation`](super::Aggregation) of the batch.
    #[default]
    Token,
    /// Replies: their mean, whatever the aggregation.
    Reply,
}

/// A token, or with a ratio of the whole reply a reply, whose loss a [`Surrogate`] computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PolicyToken {
    /// Its log-prob now.
    pub logp: f64,
    /// `logp − logp_old`, where `logp_old` is of the policy that sampled.
    pub log_ratio: f64,
    /// Its advantage.
    pub advantage: f64,
}

/// A loss and its derivative with respect to the number it is a function of.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Term {
    /// The loss.
    pub value: f64,
    /// Its derivative.
    pub grad: f64,
}

impl Term {
    /// A loss that does not move: no gradient.
    pub const fn constant(value: f64) -> Self {
        Self { value, grad: 0.0 }
    }
}

/// Bound of the ratio that cut the gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clip {
    /// `A < 0` and a ratio below `1 − low`.
    Low,
    /// `A > 0` and a ratio above `1 + high`.
    High,
    /// `A < 0` and a ratio above the dual bound.
    Dual,
}

/// A surrogate, and the bound it has met.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clipped {
    /// The loss and its derivative.
    pub term: Term,
    /// The bound, if there was one; counted in the metric `clip_frac`.
    pub clip: Option<Clip>,
}

impl Clipped {
    /// A loss that met no bound, and its derivative.
    pub const fn free(value: f64, grad: f64) -> Self {
        Self { term: Term { value, grad }, clip: None }
    }

    /// A loss at a bound: no gradient.
    pub const fn cut_at(value: f64, clip: Clip) -> Self {
        Self { term: Term::constant(value), clip: Some(clip) }
    }
}

/// Bound of `log ρ`. Every clip cuts the gradient long before it; the bound keeps infinities out.
pub(super) const LOG_RATIO_MAX: f64 = 20.0;

/// Returns `ρ`, bounded. NaN stays NaN and is reported with the loss.
pub(super) fn ratio(log_ratio: f64) -> f64 {
    libm::exp(at_most(log_ratio, LOG_RATIO_MAX))
}

/// The smaller of both; what is not a number stays so, unlike in [`f64::min`].
pub(super) fn at_most(x: f64, bound: f64) -> f64 {
    if x > bound { bound } else { x }
}

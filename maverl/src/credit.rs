//! Open credit assignment: estimators of advantages and surrogates of the loss, which any crate can declare.
//!
//! ```
//! use maverl::credit::{Advantage, Rewarded};
//!
//! /// Rewards less the mean reward of their task.
//! #[maverl::advantage(name = "quiz/centered")]
//! pub struct Centered;
//!
//! impl Advantage for Centered {
//!     fn estimate(&self, step: &Rewarded<'_>, out: &mut [f64]) {
//!         for (row, out) in out.iter_mut().enumerate() {
//!             let of_task = || (0..step.len()).filter(|&other| step.tasks[other] == step.tasks[row]);
//!             let mean = of_task().map(|other| step.rewards[other]).sum::<f64>() / of_task().count() as f64;
//!             *out = step.rewards[row] - mean;
//!         }
//!     }
//! }
//! ```
//!
//! A run takes it with `[algorithm.advantage] kind = "quiz/centered"`; the fields of the type are its settings. The functions
//! of [`maverl_kernels::advantage`] are re-exported here for estimators to be made of.

mod gdpo;
mod step;

pub use gdpo::Gdpo;
pub use maverl_kernels::advantage::{
    Baseline, GaeParams, GaeSteps, Grouping, Moments, RaggedRows, Relative, Segments, Singleton,
    gae, moments, relative, returns, whiten,
};
pub use step::{RewardColumn, Rewarded, RewardedStep};

/// An estimator of advantages, declared with [`#[advantage]`](macro@crate::advantage).
///
/// It is a pure function of the step: no clock, no file and no random number decides an advantage, so that a run can be
/// resumed and replayed to the bit.
pub trait Advantage: Send + Sync + 'static {
    /// Estimates the advantage of each row `[N]`, or of each token if [`by_token`](Self::by_token), packed row by row.
    ///
    /// `out` holds zeros. What is not a finite number ends the update with an error.
    fn estimate(&self, step: &Rewarded<'_>, out: &mut [f64]);

    /// True if `out` has a place for each token instead of one for each row.
    fn by_token(&self) -> bool {
        false
    }
}

/// A surrogate: the loss of a token for its advantage, declared with [`#[surrogate]`](macro@crate::surrogate).
///
/// With `algorithm.loss.ratio` of the whole reply it is called once for each reply, with the mean or the sum over its
/// tokens.
pub trait Surrogate: Send + Sync + 'static {
    /// Loss and derivative with respect to `logp`.
    ///
    /// `log_ratio = logp − logp_old` moves with `logp`, one to one; everything else is constant.
    fn loss(&self, token: &PolicyToken) -> Clipped;
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
    pub const fn cut(value: f64, clip: Clip) -> Self {
        Self { term: Term::constant(value), clip: Some(clip) }
    }
}

/// An estimator with a CUDA C++ kernel beside it: `#[advantage(name = "..", cuda = "..")]` implements it.
pub trait CudaKernel: Advantage {
    /// The source, as it was written.
    const SOURCE: &'static str;

    /// The settings, an object; the kernel sees numbers and booleans of it as constants in `namespace settings`.
    fn settings(&self) -> serde_json::Value;
}

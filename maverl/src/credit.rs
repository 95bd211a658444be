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

mod backend;
#[cfg(feature = "cuda")]
mod device;
mod gdpo;
pub(crate) mod generated;
mod kernel;
mod step;

#[cfg(test)]
pub(crate) use backend::CPU;
pub(crate) use backend::Estimators;
pub use gdpo::Gdpo;
#[cfg(feature = "cuda")]
pub(crate) use generated::steps_of_a_run;
pub use kernel::KernelSource;
pub(crate) use kernel::{arrays, difference};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use maverl_engine::loss::{
    Clip, Clipped, LossUnit, PolicyReply, PolicyToken, ReplyLoss, Surrogate, Term,
};
pub use maverl_kernels::advantage::{
    Baseline, GaeParams, GaeSteps, Grouping, Moments, RaggedRows, Relative, Segments, Singleton,
    discounted_returns, gae_advantages, group_moments, relative_advantages, whiten_groups,
};
pub(crate) use step::dense;
pub use step::{GroupBy, RewardColumn, Rewarded, RewardedStep};

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

    /// Rows that [`Rewarded::units`] and [`Rewarded::groups`] put together, and the metrics `group/*` are about.
    fn group_by(&self) -> GroupBy {
        GroupBy::TaskSeat
    }

    /// Parts of the reward that its settings name, as the keys of `[rewards]`, `score` or the name that an orchestra gives a
    /// part. `maverl check` and the first step of a run report those that do not exist.
    fn named_parts(&self) -> Vec<String> {
        Vec::new()
    }

    /// Baseline that is known before the step. It is taken off [`Rewarded::rewards`].
    fn baseline(&self) -> KnownBaseline {
        KnownBaseline::None
    }
}

/// Baseline of a reward that is known before the step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum KnownBaseline {
    /// Nothing.
    #[default]
    None,
    /// Reward of one more episode on the task, played greedily.
    Greedy,
    /// Average reward of the seat over the steps so far.
    MovingAverage {
        /// Momentum of the average.
        momentum: f64,
    },
    /// Mean reward of branches in which the turn has another reply.
    Counterfactual(Unbranched),
    /// Reward less the difference that the turn makes to the mean reward of branches.
    Continuations(Unbranched),
    /// Reward less the Shapley value of the seat.
    Shapley {
        /// Number of random orders of more than four seats.
        permutations: u32,
        /// Advantage of turns without branches.
        otherwise: Unbranched,
    },
}

/// The advantage of a turn without branches, where branches are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unbranched {
    /// The reward minus the mean of the seat's turns on the task.
    #[default]
    Group,
    /// 0.
    Zero,
}

/// An estimator with a CUDA C++ kernel beside it: `#[advantage(name = "..", cuda = "..")]` implements it.
pub trait CudaKernel: Advantage {
    /// Name of the file of the kernel, as it was written in the attribute.
    const FILE: &'static str;

    /// Source of the kernel.
    const SOURCE: &'static str;

    /// The settings, an object; the kernel sees numbers and booleans of it as constants in `namespace settings`.
    fn settings(&self) -> serde_json::Value;
}

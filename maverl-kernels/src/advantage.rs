//! Advantages: how much better a row did than the ones it is compared with.
//!
//! There is one implementation of each estimator on the CPU: [`relative_advantages`], [`gae_advantages`], [`discounted_returns`], [`whiten_groups`], [`subtract_average`],
//! [`group_moments`]. They take and give f64, over rows that were sorted into [`Segments`] once; sums are taken in the order of
//! rows.
//!
//! [`Arithmetic`] has these functions for the CPU ([`CpuArithmetic`]) and, with the feature `cuda`, for a GPU. Its kernels in CUDA C++
//! are compared with the CPU.

mod arithmetic;
mod moments;
mod relative;
mod scan;
mod segments;
mod step;

pub use arithmetic::{Arithmetic, ArithmeticError, CpuArithmetic, GigpoSteps};
pub use moments::{Moments, group_moments};
pub use relative::{Baseline, Relative, relative_advantages, unit_values};
pub use scan::{GaeParams, GaeSteps, RaggedRows, discounted_returns, gae_advantages};
pub use segments::{Grouping, Segments};
pub use step::{subtract_average, whiten_groups};

#[cfg(feature = "cuda")]
#[doc(hidden)]
pub use arithmetic::tests::parity as checks;
#[cfg(feature = "cuda")]
pub(crate) use step::WHITEN_EPS;

/// A standard deviation up to this times the mean (or 1, if that is more) is the rounding of equal rewards.
pub const ROUNDING: f64 = 1e-9;

/// Advantage of a group of one unit, which has nothing to be compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Singleton {
    /// No advantage.
    Zero,
    /// Its raw value, as with mean 0 and deviation 1; the reference implementation does this.
    Raw,
}

/// Asserts that two things are of one length.
pub(crate) fn assert_same_length(name: &str, a: usize, b: usize) {
    assert_eq!(a, b, "{name}: {a} rows, where there should be {b}");
}

#[cfg(test)]
mod tests;

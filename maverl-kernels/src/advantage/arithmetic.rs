//! The arithmetic of estimators, on the CPU or on another machine.

use std::error::Error;

use super::{GaeSteps, Grouping, Moments, RaggedRows, Relative, Segments, assert_same_length};

/// The steps of GiGPO, which add to the advantages of episodes.
#[derive(Debug, Clone, Copy)]
pub struct GigpoSteps<'a> {
    /// The steps of each episode, one after the other.
    pub episodes: &'a RaggedRows,
    /// Discount of later rewards.
    pub gamma: f64,
    /// The anchor of each step, `[N]`: those with one anchor are compared.
    pub anchors: &'a Segments,
    /// Weight of the steps beside the episodes.
    pub weight: f64,
}

/// Error of the machine that computes.
pub type ArithmeticError = Box<dyn Error + Send + Sync>;

/// Arithmetic of estimators over the rows of a batch.
///
/// There are two implementations. [`CpuArithmetic`] calls this module's functions, in f64. With the feature `cuda`, the kernels of a
/// GPU compute with numbers that are rounded to f32 and sums in f64. They are compared with the CPU: within 1e-6 of the
/// largest number where the kernels run as C++ on the CPU, 1e-5 on a GPU. The bits of either depend on no number of threads,
/// and those of a group or text on no other.
pub trait Arithmetic: Send + Sync {
    /// Count, mean and deviation of each group, `[groups]`: [`group_moments`](super::group_moments()).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn group_moments(&self, values: &[f64], by: &Segments)
    -> Result<Vec<Moments>, ArithmeticError>;

    /// The value of each row's unit `[N]`, and the moments of each group over its units, `[groups]`: the terms of
    /// [`relative_advantages`](Self::relative_advantages).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn unit_values(
        &self,
        values: &[f64],
        by: &Grouping,
    ) -> Result<(Vec<f64>, Vec<Moments>), ArithmeticError>;

    /// The advantage of each row `[N]`, relative to its group, and the moments of each group over its units, `[groups]`:
    /// [`relative_advantages`](super::relative_advantages()). The deviation may be that of other groups than the mean.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn relative_advantages(
        &self,
        values: &[f64],
        by: &Grouping,
        deviation: Option<&Grouping>,
        options: &Relative,
    ) -> Result<(Vec<f64>, Vec<Moments>), ArithmeticError>;

    /// The advantages of episodes `[N]`, one for each of their steps, with those of the steps among their anchors.
    ///
    /// ```text
    /// Rₜ = rₜ + γ · Rₜ₊₁
    /// A  = A_episode + w · (R − b) / (σ + ε)          over the steps of one anchor
    /// ```
    ///
    /// GiGPO, [2505.10978](https://arxiv.org/abs/2505.10978) §4.2. An anchor of one step adds what
    /// [`Singleton`](super::Singleton) says.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn step_groups(
        &self,
        episodes: &[f64],
        rewards: &[f64],
        steps: &GigpoSteps<'_>,
        options: &Relative,
    ) -> Result<Vec<f64>, ArithmeticError>;

    /// Advantages and returns of every place, both `[N]`: [`gae_advantages`](super::gae_advantages()).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn gae_advantages(
        &self,
        rewards: &[f64],
        values: &[f64],
        after: &[f64],
        places: &RaggedRows,
        hops: GaeSteps,
    ) -> Result<(Vec<f64>, Vec<f64>), ArithmeticError>;

    /// The discounted sum of rewards from each place on, `[N]`: [`discounted_returns`](super::discounted_returns()).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn discounted_returns(
        &self,
        rewards: &[f64],
        places: &RaggedRows,
        gamma: f64,
    ) -> Result<Vec<f64>, ArithmeticError>;

    /// Mean 0 and deviation 1 in each group, over tokens: [`whiten_groups`](super::whiten_groups()).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn whiten_groups(
        &self,
        values: &[f64],
        tokens: &[u32],
        by: &Segments,
    ) -> Result<Vec<f64>, ArithmeticError>;

    /// Rewards `[N]` less the moving average of each seat: [`subtract_average`](super::subtract_average()).
    ///
    /// # Panics
    ///
    /// If the lengths differ, or a seat has no average.
    fn subtract_average(
        &self,
        rewards: &[f64],
        seats: &Segments,
        momentum: f64,
        averages: &mut [f64],
    ) -> Result<Vec<f64>, ArithmeticError>;
}

/// This module's functions, in f64. The same bits on any number of threads.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuArithmetic;

impl Arithmetic for CpuArithmetic {
    fn group_moments(
        &self,
        values: &[f64],
        by: &Segments,
    ) -> Result<Vec<Moments>, ArithmeticError> {
        Ok(super::group_moments(values, by))
    }

    fn unit_values(
        &self,
        values: &[f64],
        by: &Grouping,
    ) -> Result<(Vec<f64>, Vec<Moments>), ArithmeticError> {
        Ok(super::unit_values(values, by))
    }

    fn relative_advantages(
        &self,
        values: &[f64],
        by: &Grouping,
        deviation: Option<&Grouping>,
        options: &Relative,
    ) -> Result<(Vec<f64>, Vec<Moments>), ArithmeticError> {
        Ok(super::relative_advantages(values, by, deviation, options))
    }

    fn step_groups(
        &self,
        episodes: &[f64],
        rewards: &[f64],
        steps: &GigpoSteps<'_>,
        options: &Relative,
    ) -> Result<Vec<f64>, ArithmeticError> {
        assert_same_length("step_groups", episodes.len(), rewards.len());
        assert_same_length("step_groups", episodes.len(), steps.anchors.len());
        let returns = super::discounted_returns(rewards, steps.episodes, steps.gamma);
        let anchors = Grouping::from(steps.anchors.clone());
        let (among, _) = super::relative_advantages(&returns, &anchors, None, options);
        Ok(episodes.iter().zip(among).map(|(of, among)| of + steps.weight * among).collect())
    }

    fn gae_advantages(
        &self,
        rewards: &[f64],
        values: &[f64],
        after: &[f64],
        places: &RaggedRows,
        hops: GaeSteps,
    ) -> Result<(Vec<f64>, Vec<f64>), ArithmeticError> {
        Ok(super::gae_advantages(rewards, values, after, places, hops))
    }

    fn discounted_returns(
        &self,
        rewards: &[f64],
        places: &RaggedRows,
        gamma: f64,
    ) -> Result<Vec<f64>, ArithmeticError> {
        Ok(super::discounted_returns(rewards, places, gamma))
    }

    fn whiten_groups(
        &self,
        values: &[f64],
        tokens: &[u32],
        by: &Segments,
    ) -> Result<Vec<f64>, ArithmeticError> {
        Ok(super::whiten_groups(values, tokens, by))
    }

    fn subtract_average(
        &self,
        rewards: &[f64],
        seats: &Segments,
        momentum: f64,
        averages: &mut [f64],
    ) -> Result<Vec<f64>, ArithmeticError> {
        Ok(super::subtract_average(rewards, seats, momentum, averages))
    }
}

#[cfg(any(test, feature = "cuda"))]
pub(crate) mod tests;

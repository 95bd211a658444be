//! The arithmetic of estimators, on the CPU or on another machine.

use std::error::Error;

use super::{GaeSteps, Grouping, Moments, RaggedRows, Relative, Segments, same};

/// The steps of GiGPO, which add to the advantages of episodes.
#[derive(Debug, Clone, Copy)]
pub struct Steps<'a> {
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
/// There are two implementations. [`Cpu`] calls this module's functions, in f64. With the feature `cuda`, the kernels of a
/// GPU compute with numbers that are rounded to f32 and sums in f64. They are compared with the CPU: within 1e-6 of the
/// largest number where the kernels run as C++ on the CPU, 1e-5 on a GPU. The bits of either depend on no number of threads,
/// and those of a group or text on no other.
pub trait Arithmetic: Send + Sync {
    /// Count, mean and deviation of each group, `[groups]`: [`moments`](super::moments()).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn moments(&self, values: &[f64], by: &Segments) -> Result<Vec<Moments>, ArithmeticError>;

    /// The value of each row's unit `[N]`, and the moments of each group over its units, `[groups]`: the terms of
    /// [`relative`](Self::relative).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn units(
        &self,
        values: &[f64],
        by: &Grouping,
    ) -> Result<(Vec<f64>, Vec<Moments>), ArithmeticError>;

    /// The advantage of each row `[N]`, relative to its group, and the moments of each group over its units, `[groups]`:
    /// [`relative`](super::relative()). The deviation may be that of other groups than the mean.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn relative(
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
        steps: &Steps<'_>,
        options: &Relative,
    ) -> Result<Vec<f64>, ArithmeticError>;

    /// Advantages and returns of every place, both `[N]`: [`gae`](super::gae()).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn gae(
        &self,
        rewards: &[f64],
        values: &[f64],
        after: &[f64],
        places: &RaggedRows,
        hops: GaeSteps,
    ) -> Result<(Vec<f64>, Vec<f64>), ArithmeticError>;

    /// The discounted sum of rewards from each place on, `[N]`: [`returns`](super::returns()).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn returns(
        &self,
        rewards: &[f64],
        places: &RaggedRows,
        gamma: f64,
    ) -> Result<Vec<f64>, ArithmeticError>;

    /// Mean 0 and deviation 1 in each group, over tokens: [`whiten`](super::whiten()).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn whiten(
        &self,
        values: &[f64],
        tokens: &[u32],
        by: &Segments,
    ) -> Result<Vec<f64>, ArithmeticError>;

    /// Rewards `[N]` less the moving average of each seat: [`ema`](super::ema()).
    ///
    /// # Panics
    ///
    /// If the lengths differ, or a seat has no average.
    fn ema(
        &self,
        rewards: &[f64],
        seats: &Segments,
        momentum: f64,
        averages: &mut [f64],
    ) -> Result<Vec<f64>, ArithmeticError>;
}

/// This module's functions, in f64. The same bits on any number of threads.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu;

impl Arithmetic for Cpu {
    fn moments(&self, values: &[f64], by: &Segments) -> Result<Vec<Moments>, ArithmeticError> {
        Ok(super::moments(values, by))
    }

    fn units(
        &self,
        values: &[f64],
        by: &Grouping,
    ) -> Result<(Vec<f64>, Vec<Moments>), ArithmeticError> {
        Ok(super::units(values, by))
    }

    fn relative(
        &self,
        values: &[f64],
        by: &Grouping,
        deviation: Option<&Grouping>,
        options: &Relative,
    ) -> Result<(Vec<f64>, Vec<Moments>), ArithmeticError> {
        Ok(super::relative(values, by, deviation, options))
    }

    fn step_groups(
        &self,
        episodes: &[f64],
        rewards: &[f64],
        steps: &Steps<'_>,
        options: &Relative,
    ) -> Result<Vec<f64>, ArithmeticError> {
        same("step_groups", episodes.len(), rewards.len());
        same("step_groups", episodes.len(), steps.anchors.len());
        let returns = super::returns(rewards, steps.episodes, steps.gamma);
        let anchors = Grouping::from(steps.anchors.clone());
        let (among, _) = super::relative(&returns, &anchors, None, options);
        Ok(episodes.iter().zip(among).map(|(of, among)| of + steps.weight * among).collect())
    }

    fn gae(
        &self,
        rewards: &[f64],
        values: &[f64],
        after: &[f64],
        places: &RaggedRows,
        hops: GaeSteps,
    ) -> Result<(Vec<f64>, Vec<f64>), ArithmeticError> {
        Ok(super::gae(rewards, values, after, places, hops))
    }

    fn returns(
        &self,
        rewards: &[f64],
        places: &RaggedRows,
        gamma: f64,
    ) -> Result<Vec<f64>, ArithmeticError> {
        Ok(super::returns(rewards, places, gamma))
    }

    fn whiten(
        &self,
        values: &[f64],
        tokens: &[u32],
        by: &Segments,
    ) -> Result<Vec<f64>, ArithmeticError> {
        Ok(super::whiten(values, tokens, by))
    }

    fn ema(
        &self,
        rewards: &[f64],
        seats: &Segments,
        momentum: f64,
        averages: &mut [f64],
    ) -> Result<Vec<f64>, ArithmeticError> {
        Ok(super::ema(rewards, seats, momentum, averages))
    }
}

#[cfg(any(test, feature = "cuda"))]
pub(crate) mod tests;

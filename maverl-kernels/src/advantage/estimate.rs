//! The estimators that a GPU computes too, over arrays of f32.

use std::convert::Infallible;

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

/// Advantages of a batch, from arrays of f32 with sums in f64.
///
/// Two implementations have these signatures: [`Cpu`], which rounds the results of this module's functions, and with the
/// feature `cuda` a GPU, whose kernels are compared with it: within 1e-6 of the largest number where the kernels run as C++
/// on the CPU, 1e-5 on a GPU. The bits of either depend on no number of threads, and those of a group or text on no other.
pub trait Estimate {
    /// Error of the machine.
    type Error;

    /// Count, mean and deviation of each group, `[groups]`: [`moments`](super::moments()).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn moments(&self, values: &[f32], by: &Segments) -> Result<Vec<Moments>, Self::Error>;

    /// The value of each row's unit `[N]`, and the moments of each group over its units, `[groups]`: the terms of
    /// [`relative`](Self::relative) and [`relative_apart`](Self::relative_apart), in f64.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn units(&self, values: &[f32], by: &Grouping)
    -> Result<(Vec<f64>, Vec<Moments>), Self::Error>;

    /// The advantage of each row `[N]`, relative to its group: [`relative`](super::relative()).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn relative(
        &self,
        values: &[f32],
        by: &Grouping,
        options: &Relative,
    ) -> Result<Vec<f32>, Self::Error>;

    /// [`relative`](Self::relative) with the deviation of other groups than the mean: the variants of Dr. MAS's ablation.
    /// Where these have no spread, or one unit, there is no scale and the advantage is 0.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn relative_apart(
        &self,
        values: &[f32],
        mean: &Grouping,
        deviation: &Grouping,
        options: &Relative,
    ) -> Result<Vec<f32>, Self::Error>;

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
        episodes: &[f32],
        rewards: &[f32],
        steps: &Steps<'_>,
        options: &Relative,
    ) -> Result<Vec<f32>, Self::Error>;

    /// Advantages and returns of every place, both `[N]`: [`gae`](super::gae()).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn gae(
        &self,
        rewards: &[f32],
        values: &[f32],
        after: &[f32],
        places: &RaggedRows,
        hops: GaeSteps,
    ) -> Result<(Vec<f32>, Vec<f32>), Self::Error>;

    /// The discounted sum of rewards from each place on, `[N]`: [`returns`](super::returns()).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn returns(
        &self,
        rewards: &[f32],
        places: &RaggedRows,
        gamma: f64,
    ) -> Result<Vec<f32>, Self::Error>;

    /// Mean 0 and deviation 1 in each group, over tokens: [`whiten`](super::whiten()).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn whiten(
        &self,
        values: &[f32],
        tokens: &[u32],
        by: &Segments,
    ) -> Result<Vec<f32>, Self::Error>;

    /// Rewards `[N]` less the moving average of each seat: [`ema`](super::ema()).
    ///
    /// # Panics
    ///
    /// If the lengths differ, or a seat has no average.
    fn ema(
        &self,
        rewards: &[f32],
        seats: &Segments,
        momentum: f64,
        averages: &mut [f64],
    ) -> Result<Vec<f32>, Self::Error>;
}

/// This module's functions, with results rounded to f32. The same bits on any number of threads.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu;

impl Estimate for Cpu {
    type Error = Infallible;

    fn moments(&self, values: &[f32], by: &Segments) -> Result<Vec<Moments>, Infallible> {
        Ok(super::moments(&widened(values), by))
    }

    fn units(&self, values: &[f32], by: &Grouping) -> Result<(Vec<f64>, Vec<Moments>), Infallible> {
        Ok(super::units(&widened(values), by))
    }

    fn relative(
        &self,
        values: &[f32],
        by: &Grouping,
        options: &Relative,
    ) -> Result<Vec<f32>, Infallible> {
        Ok(rounded(super::relative(&widened(values), by, None, options).0))
    }

    fn relative_apart(
        &self,
        values: &[f32],
        mean: &Grouping,
        deviation: &Grouping,
        options: &Relative,
    ) -> Result<Vec<f32>, Infallible> {
        Ok(rounded(super::relative(&widened(values), mean, Some(deviation), options).0))
    }

    fn step_groups(
        &self,
        episodes: &[f32],
        rewards: &[f32],
        steps: &Steps<'_>,
        options: &Relative,
    ) -> Result<Vec<f32>, Infallible> {
        same("step_groups", episodes.len(), rewards.len());
        same("step_groups", episodes.len(), steps.anchors.len());
        let returns = self.returns(rewards, steps.episodes, steps.gamma)?;
        let anchors = Grouping::from(steps.anchors.clone());
        let (among, _) = super::relative(&widened(&returns), &anchors, None, options);
        let both = episodes.iter().zip(among);
        Ok(rounded(both.map(|(&of, among)| f64::from(of) + steps.weight * among)))
    }

    fn gae(
        &self,
        rewards: &[f32],
        values: &[f32],
        after: &[f32],
        places: &RaggedRows,
        hops: GaeSteps,
    ) -> Result<(Vec<f32>, Vec<f32>), Infallible> {
        let [rewards, values, after] = [rewards, values, after].map(widened);
        let (advantages, returns) = super::gae(&rewards, &values, &after, places, hops);
        Ok((rounded(advantages), rounded(returns)))
    }

    fn returns(
        &self,
        rewards: &[f32],
        places: &RaggedRows,
        gamma: f64,
    ) -> Result<Vec<f32>, Infallible> {
        Ok(rounded(super::returns(&widened(rewards), places, gamma)))
    }

    fn whiten(
        &self,
        values: &[f32],
        tokens: &[u32],
        by: &Segments,
    ) -> Result<Vec<f32>, Infallible> {
        Ok(rounded(super::whiten(&widened(values), tokens, by)))
    }

    fn ema(
        &self,
        rewards: &[f32],
        seats: &Segments,
        momentum: f64,
        averages: &mut [f64],
    ) -> Result<Vec<f32>, Infallible> {
        Ok(rounded(super::ema(&widened(rewards), seats, momentum, averages)))
    }
}

fn widened(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

fn rounded(values: impl IntoIterator<Item = f64>) -> Vec<f32> {
    values.into_iter().map(|value| value as f32).collect()
}

#[cfg(any(test, feature = "cuda"))]
pub(crate) mod tests;

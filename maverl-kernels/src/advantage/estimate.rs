//! Every estimator over arrays of f32, and where it is computed.

use std::convert::Infallible;

use super::relative::Groups;
use super::{GaeSteps, Grouping, Moments, RaggedRows, Relative, Segments, moments};
use crate::par;

/// Added to the variance when whitening, as in the reference implementations.
pub(crate) const WHITEN_EPS: f64 = 1e-8;

/// What GiGPO adds to the advantages of episodes.
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
/// Two implementations have these signatures: [`Cpu`], which is the reference, and with the feature `cuda` a GPU. They are
/// held to 1e-5 of the largest number. The bits of either depend on no number of threads, and those of a group or text on
/// no other.
pub trait Estimate {
    /// What may go wrong.
    type Error;

    /// How many, mean and deviation of each group, `[groups]`.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn moments(&self, values: &[f32], by: &Segments) -> Result<Vec<Moments>, Self::Error>;

    /// The advantage of each row `[N]`, relative to its group.
    ///
    /// ```text
    /// u = mean of values over the rows of the unit
    /// A = (u − b) / (σ + ε)              mean            b = μ
    ///                                    leave_one_out   u − b = n / (n − 1) · (u − μ)
    /// ```
    ///
    /// GRPO ([2402.03300](https://arxiv.org/abs/2402.03300) §4.1.2), RLOO
    /// ([2402.14740](https://arxiv.org/abs/2402.14740) §2), Dr. MAS ([2602.08847](https://arxiv.org/abs/2602.08847) eq.
    /// 5). `σ` is the sample deviation (n − 1) over units; a group of one follows [`Singleton`](super::Singleton).
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

    /// Advantages and returns of every place, both `[N]`; the value after the end of a row is `after`, `[rows]`.
    ///
    /// ```text
    /// δₜ = rₜ + γ · Vₜ₊₁ − Vₜ
    /// Aₜ = δₜ + γ · λ · Aₜ₊₁
    /// Gₜ = Aₜ + Vₜ
    /// ```
    ///
    /// GAE, [1506.02438](https://arxiv.org/abs/1506.02438) eq. 16; over chains of replies it is MARFT's,
    /// [2504.16129](https://arxiv.org/abs/2504.16129), with places of actions or of tokens.
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

    /// The discounted sum of rewards from each place on, `[N]`: `Rₜ = rₜ + γ · Rₜ₊₁`.
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

    /// Mean 0 and deviation 1 in each group, over tokens, of which each row has so many `[N]`. One group is the batch; a
    /// group for each seat is the per-agent form. A row of 0 tokens is in no statistic.
    ///
    /// ```text
    /// x = (x − mean) / sqrt(var + 1e-8)          var over n − 1 tokens
    /// ```
    ///
    /// REINFORCE++, [2501.03262](https://arxiv.org/abs/2501.03262) §3.
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

    /// Rewards `[N]` less the moving average of each seat, which moves after they are taken.
    ///
    /// ```text
    /// A = r − b
    /// b ← m · b + (1 − m) · mean r of the seat         if it has a row
    /// ```
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

/// The reference: the current rayon pool. Its results are the same to the bit on any number of threads.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu;

impl Estimate for Cpu {
    type Error = Infallible;

    fn moments(&self, values: &[f32], by: &Segments) -> Result<Vec<Moments>, Infallible> {
        same("moments", values.len(), by.len());
        Ok(moments::moments(by, |row| (f64::from(values[row]), 1.0)))
    }

    fn relative(
        &self,
        values: &[f32],
        by: &Grouping,
        options: &Relative,
    ) -> Result<Vec<f32>, Infallible> {
        let groups = Groups::of(values, by);
        Ok(each(values.len(), |row| {
            options.advantage(groups.value(values, row), groups.group(row), None)
        }))
    }

    fn relative_apart(
        &self,
        values: &[f32],
        mean: &Grouping,
        deviation: &Grouping,
        options: &Relative,
    ) -> Result<Vec<f32>, Infallible> {
        let (groups, scales) = (Groups::of(values, mean), Groups::of(values, deviation));
        Ok(each(values.len(), |row| {
            let value = groups.value(values, row);
            options.advantage(value, groups.group(row), Some(scales.group(row)))
        }))
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
        let groups = moments::moments(steps.anchors, |row| (f64::from(returns[row]), 1.0));
        Ok(each(episodes.len(), |row| {
            let own = &groups[steps.anchors.ids()[row] as usize];
            let among = options.advantage(f64::from(returns[row]), own, None);
            f64::from(episodes[row]) + steps.weight * among
        }))
    }

    fn gae(
        &self,
        rewards: &[f32],
        values: &[f32],
        after: &[f32],
        places: &RaggedRows,
        hops: GaeSteps,
    ) -> Result<(Vec<f32>, Vec<f32>), Infallible> {
        same("gae", rewards.len(), places.len());
        same("gae", values.len(), places.len());
        same("gae", after.len(), places.count());
        let at = |place: usize| (f64::from(rewards[place]), f64::from(values[place]));
        let both = places.scan(at, |row| f64::from(after[row]), hops);
        Ok(both.into_iter().map(|[advantage, gain]| (advantage, gain)).unzip())
    }

    fn returns(
        &self,
        rewards: &[f32],
        places: &RaggedRows,
        gamma: f64,
    ) -> Result<Vec<f32>, Infallible> {
        same("returns", rewards.len(), places.len());
        let hops = GaeSteps::all(super::GaeParams { gamma, lambda: 1.0 });
        let both = places.scan(|place| (f64::from(rewards[place]), 0.0), |_| 0.0, hops);
        Ok(both.into_iter().map(|[advantage, _]| advantage).collect())
    }

    fn whiten(
        &self,
        values: &[f32],
        tokens: &[u32],
        by: &Segments,
    ) -> Result<Vec<f32>, Infallible> {
        same("whiten", values.len(), by.len());
        same("whiten", tokens.len(), by.len());
        let groups = moments::moments(by, |row| (f64::from(values[row]), f64::from(tokens[row])));
        Ok(each(values.len(), |row| {
            let own = &groups[by.ids()[row] as usize];
            (f64::from(values[row]) - own.mean) / (own.variance() + WHITEN_EPS).sqrt()
        }))
    }

    fn ema(
        &self,
        rewards: &[f32],
        seats: &Segments,
        momentum: f64,
        averages: &mut [f64],
    ) -> Result<Vec<f32>, Infallible> {
        assert!(seats.groups() <= averages.len(), "ema: one average per seat");
        let groups = self.moments(rewards, seats)?;
        let advantages = each(rewards.len(), |row| {
            f64::from(rewards[row]) - averages[seats.ids()[row] as usize]
        });
        for (average, own) in averages.iter_mut().zip(groups).filter(|(_, own)| own.n > 0.0) {
            *average = momentum * *average + (1.0 - momentum) * own.mean;
        }
        Ok(advantages)
    }
}

/// Asserts that two things are of one length.
pub(crate) fn same(name: &str, a: usize, b: usize) {
    assert_eq!(a, b, "{name}: {a} rows, where there should be {b}");
}

/// `f` of every row, rounded.
fn each(n: usize, f: impl Fn(usize) -> f64 + Sync) -> Vec<f32> {
    let mut out = vec![0.0; n];
    par::parts(&mut out, 1, |start, part| {
        for (row, out) in (start..).zip(part) {
            *out = f(row) as f32;
        }
    });
    out
}

#[cfg(test)]
pub(crate) mod tests;

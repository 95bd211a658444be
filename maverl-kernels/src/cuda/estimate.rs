//! The estimators on a machine, for host slices.

use std::convert::Infallible;

use super::kernels::{Add, Measured, NONE, Scan};
use super::{Kernels, Machine};
use crate::advantage::{
    Baseline, Cpu, Estimate, GaeSteps, Grouping, Moments, RaggedRows, Relative, Segments, Steps,
    same,
};

impl<M: Machine> Estimate for Kernels<M> {
    type Error = M::Error;

    fn moments(&self, values: &[f32], by: &Segments) -> Result<Vec<Moments>, M::Error> {
        same("moments", values.len(), by.len());
        let (values, by) = (self.machine.upload(values)?, self.segments(by)?);
        let groups = self.measure("moments_f32", self.at(&values), NONE, &by)?;
        self.download_moments(&groups, by.groups)
    }

    fn units(&self, values: &[f32], by: &Grouping) -> Result<(Vec<f64>, Vec<Moments>), M::Error> {
        same("units", values.len(), by.len());
        let (on, of) = (self.machine.upload(values)?, self.grouping(by)?);
        let Measured { units, groups } = self.measure_units(self.at(&on), &of)?;
        let groups = self.download_moments(&groups, of.groups.groups)?;
        let (Some(units), Some(segments)) = (units, &of.units) else {
            return Ok((values.iter().copied().map(f64::from).collect(), groups));
        };
        let units = self.download_moments(&units, segments.groups)?;
        Ok(((0..values.len()).map(|row| units[by.unit(row)].mean).collect(), groups))
    }

    fn relative(
        &self,
        values: &[f32],
        by: &Grouping,
        options: &Relative,
    ) -> Result<Vec<f32>, M::Error> {
        same("relative", values.len(), by.len());
        if options.baseline == Baseline::SecondBest {
            return Ok(on_cpu(Cpu.relative(values, by, options)));
        }
        let by = self.grouping(by)?;
        self.map(values, |values, out| self.relative_at(values, &by, options, Add::NOTHING, out))
    }

    fn relative_apart(
        &self,
        values: &[f32],
        mean: &Grouping,
        deviation: &Grouping,
        options: &Relative,
    ) -> Result<Vec<f32>, M::Error> {
        same("relative_apart", values.len(), mean.len());
        same("relative_apart", values.len(), deviation.len());
        if options.baseline == Baseline::SecondBest {
            return Ok(on_cpu(Cpu.relative_apart(values, mean, deviation, options)));
        }
        let (mean, deviation) = (self.grouping(mean)?, self.grouping(deviation)?);
        self.map(values, |values, out| {
            self.relative_rows(values, &mean, Some(&deviation), options, Add::NOTHING, out)
        })
    }

    fn step_groups(
        &self,
        episodes: &[f32],
        rewards: &[f32],
        steps: &Steps<'_>,
        options: &Relative,
    ) -> Result<Vec<f32>, M::Error> {
        same("step_groups", episodes.len(), rewards.len());
        same("step_groups", episodes.len(), steps.anchors.len());
        same("step_groups", episodes.len(), steps.episodes.len());
        let (places, anchors) = (self.places(steps.episodes)?, self.segments(steps.anchors)?);
        let returns = self.machine.space::<f32>(rewards.len().max(1))?;
        let rewards = self.machine.upload(rewards)?;
        let scan = Scan::returns(self.at(&rewards), steps.gamma, self.at(&returns));
        self.scan_at(&scan, &places)?;
        self.map(episodes, |episodes, out| {
            let add = Add { to: episodes, weight: steps.weight };
            self.relative_segments(self.at(&returns), &anchors, options, add, out)
        })
    }

    fn gae(
        &self,
        rewards: &[f32],
        values: &[f32],
        after: &[f32],
        places: &RaggedRows,
        hops: GaeSteps,
    ) -> Result<(Vec<f32>, Vec<f32>), M::Error> {
        same("gae", rewards.len(), places.len());
        same("gae", values.len(), places.len());
        same("gae", after.len(), places.count());
        let places = self.places(places)?;
        let (values, after) = (self.machine.upload(values)?, self.machine.upload(after)?);
        let returns = self.machine.space::<f32>(places.len.max(1))?;
        let advantages = self.map(rewards, |rewards, advantages| {
            let (values, after, returns) = (self.at(&values), self.at(&after), self.at(&returns));
            self.scan_at(&Scan { rewards, values, after, hops, advantages, returns }, &places)
        })?;
        Ok((advantages, self.machine.download(&returns, places.len)?))
    }

    fn returns(
        &self,
        rewards: &[f32],
        places: &RaggedRows,
        gamma: f64,
    ) -> Result<Vec<f32>, M::Error> {
        same("returns", rewards.len(), places.len());
        let places = self.places(places)?;
        self.map(rewards, |rewards, out| self.scan_at(&Scan::returns(rewards, gamma, out), &places))
    }

    fn whiten(&self, values: &[f32], tokens: &[u32], by: &Segments) -> Result<Vec<f32>, M::Error> {
        same("whiten", values.len(), by.len());
        same("whiten", tokens.len(), by.len());
        let (tokens, by) = (self.machine.upload(tokens)?, self.segments(by)?);
        self.map(values, |values, out| self.whiten_at(values, self.at(&tokens), &by, out))
    }

    fn ema(
        &self,
        rewards: &[f32],
        seats: &Segments,
        momentum: f64,
        averages: &mut [f64],
    ) -> Result<Vec<f32>, M::Error> {
        same("ema", rewards.len(), seats.len());
        assert!(seats.groups() <= averages.len(), "ema: one average per seat");
        let (seats, moved) = (self.segments(seats)?, self.machine.upload(averages)?);
        let advantages = self.map(rewards, |rewards, out| {
            self.ema_at(rewards, &seats, momentum, self.at(&moved), out)
        })?;
        averages.copy_from_slice(&self.machine.download(&moved, averages.len())?);
        Ok(advantages)
    }
}

impl<M: Machine> Kernels<M> {
    fn download_moments(
        &self,
        of: &M::Array<f64>,
        groups: usize,
    ) -> Result<Vec<Moments>, M::Error> {
        let numbers = self.machine.download(of, 3 * groups)?;
        let one = |m: &[f64]| Moments { n: m[0], mean: m[1], m2: m[2] };
        Ok(numbers.chunks_exact(3).map(one).collect())
    }

    /// Runs `f` on the addresses of `values` and of an output of the same length. Returns the output.
    fn map(
        &self,
        values: &[f32],
        f: impl FnOnce(u64, u64) -> Result<(), M::Error>,
    ) -> Result<Vec<f32>, M::Error> {
        let (values, n) = (self.machine.upload(values)?, values.len());
        let out = self.machine.space::<f32>(n.max(1))?;
        f(self.at(&values), self.at(&out))?;
        self.machine.download(&out, n)
    }
}

/// The second best has no kernel: its advantages are computed on the CPU.
fn on_cpu(advantages: Result<Vec<f32>, Infallible>) -> Vec<f32> {
    let Ok(advantages) = advantages;
    advantages
}

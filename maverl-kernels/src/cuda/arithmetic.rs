//! The arithmetic of estimators on a machine, for host slices. Numbers are rounded to f32.

use std::error::Error;

use super::kernels::{Add, Measured, NONE, Scan};
use super::{Kernels, Machine};
use crate::advantage::{
    Arithmetic, ArithmeticError, Baseline, Cpu, GaeSteps, Grouping, Moments, RaggedRows, Relative,
    Segments, Steps, same,
};

impl<M> Arithmetic for Kernels<M>
where
    M: Machine<Error: Error + Send + Sync + 'static> + Send + Sync,
{
    fn moments(&self, values: &[f64], by: &Segments) -> Result<Vec<Moments>, ArithmeticError> {
        same("moments", values.len(), by.len());
        let (values, by) = (self.upload(values)?, self.segments(by)?);
        let groups = self.measure("moments_f32", self.at(&values), NONE, &by)?;
        Ok(self.download_moments(&groups, by.groups)?)
    }

    fn units(
        &self,
        values: &[f64],
        by: &Grouping,
    ) -> Result<(Vec<f64>, Vec<Moments>), ArithmeticError> {
        same("units", values.len(), by.len());
        let values = narrow(values);
        let (on, of) = (self.machine.upload(&values)?, self.grouping(by)?);
        let Measured { units, groups } = self.measure_units(self.at(&on), &of)?;
        let groups = self.download_moments(&groups, of.groups.groups)?;
        let (Some(units), Some(segments)) = (units, &of.units) else {
            return Ok((wide(values), groups));
        };
        let units = self.download_moments(&units, segments.groups)?;
        Ok(((0..values.len()).map(|row| units[by.unit(row)].mean).collect(), groups))
    }

    fn relative(
        &self,
        values: &[f64],
        by: &Grouping,
        deviation: Option<&Grouping>,
        options: &Relative,
    ) -> Result<(Vec<f64>, Vec<Moments>), ArithmeticError> {
        same("relative", values.len(), by.len());
        let (_, moments) = self.units(values, by)?;
        if options.baseline == Baseline::SecondBest {
            // It has no kernel.
            let (advantages, _) = Cpu.relative(&wide(narrow(values)), by, deviation, options)?;
            return Ok((wide(narrow(&advantages)), moments));
        }
        let mean = self.grouping(by)?;
        let Some(deviation) = deviation else {
            let advantages = self.map(values, |values, out| {
                self.relative_at(values, &mean, options, Add::NOTHING, out)
            });
            return Ok((advantages?, moments));
        };
        same("relative", values.len(), deviation.len());
        let deviation = self.grouping(deviation)?;
        let advantages = self.map(values, |values, out| {
            self.relative_rows(values, &mean, Some(&deviation), options, Add::NOTHING, out)
        });
        Ok((advantages?, moments))
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
        same("step_groups", episodes.len(), steps.episodes.len());
        let (places, anchors) = (self.places(steps.episodes)?, self.segments(steps.anchors)?);
        let returns = self.machine.space::<f32>(rewards.len().max(1))?;
        let rewards = self.upload(rewards)?;
        let scan = Scan::returns(self.at(&rewards), steps.gamma, self.at(&returns));
        self.scan_at(&scan, &places)?;
        Ok(self.map(episodes, |episodes, out| {
            let add = Add { to: episodes, weight: steps.weight };
            self.relative_segments(self.at(&returns), &anchors, options, add, out)
        })?)
    }

    fn gae(
        &self,
        rewards: &[f64],
        values: &[f64],
        after: &[f64],
        places: &RaggedRows,
        hops: GaeSteps,
    ) -> Result<(Vec<f64>, Vec<f64>), ArithmeticError> {
        same("gae", rewards.len(), places.len());
        same("gae", values.len(), places.len());
        same("gae", after.len(), places.count());
        let places = self.places(places)?;
        let (values, after) = (self.upload(values)?, self.upload(after)?);
        let returns = self.machine.space::<f32>(places.len.max(1))?;
        let advantages = self.map(rewards, |rewards, advantages| {
            let (values, after, returns) = (self.at(&values), self.at(&after), self.at(&returns));
            self.scan_at(&Scan { rewards, values, after, hops, advantages, returns }, &places)
        })?;
        Ok((advantages, wide(self.machine.download(&returns, places.len)?)))
    }

    fn returns(
        &self,
        rewards: &[f64],
        places: &RaggedRows,
        gamma: f64,
    ) -> Result<Vec<f64>, ArithmeticError> {
        same("returns", rewards.len(), places.len());
        let places = self.places(places)?;
        let scan = |rewards, out| self.scan_at(&Scan::returns(rewards, gamma, out), &places);
        Ok(self.map(rewards, scan)?)
    }

    fn whiten(
        &self,
        values: &[f64],
        tokens: &[u32],
        by: &Segments,
    ) -> Result<Vec<f64>, ArithmeticError> {
        same("whiten", values.len(), by.len());
        same("whiten", tokens.len(), by.len());
        let (tokens, by) = (self.machine.upload(tokens)?, self.segments(by)?);
        Ok(self.map(values, |values, out| self.whiten_at(values, self.at(&tokens), &by, out))?)
    }

    fn ema(
        &self,
        rewards: &[f64],
        seats: &Segments,
        momentum: f64,
        averages: &mut [f64],
    ) -> Result<Vec<f64>, ArithmeticError> {
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
    fn upload(&self, values: &[f64]) -> Result<M::Array<f32>, M::Error> {
        self.machine.upload(&narrow(values))
    }

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
        values: &[f64],
        f: impl FnOnce(u64, u64) -> Result<(), M::Error>,
    ) -> Result<Vec<f64>, M::Error> {
        let (values, n) = (self.upload(values)?, values.len());
        let out = self.machine.space::<f32>(n.max(1))?;
        f(self.at(&values), self.at(&out))?;
        Ok(wide(self.machine.download(&out, n)?))
    }
}

fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

fn wide(values: Vec<f32>) -> Vec<f64> {
    values.into_iter().map(f64::from).collect()
}

//! The arithmetic of estimators on a machine, for host slices. Numbers are rounded to f32.

use std::error::Error;

use super::kernels::{Measured, NONE, ScanArguments, SumBase};
use super::{Kernels, Machine};
use crate::advantage::{
    Arithmetic, ArithmeticError, Baseline, CpuArithmetic, GaeSteps, GigpoSteps, Grouping, Moments,
    RaggedRows, Relative, Segments, assert_same_length,
};

impl<M> Arithmetic for Kernels<M>
where
    M: Machine<Error: Error + Send + Sync + 'static> + Send + Sync,
{
    fn group_moments(
        &self,
        values: &[f64],
        by: &Segments,
    ) -> Result<Vec<Moments>, ArithmeticError> {
        assert_same_length("moments", values.len(), by.len());
        let (values, by) = (self.upload_f32(values)?, self.upload_segments(by)?);
        let groups = self.measure_moments("moments_f32", self.address_of(&values), NONE, &by)?;
        Ok(self.download_moments(&groups, by.groups)?)
    }

    fn unit_values(
        &self,
        values: &[f64],
        by: &Grouping,
    ) -> Result<(Vec<f64>, Vec<Moments>), ArithmeticError> {
        assert_same_length("units", values.len(), by.len());
        let values = narrow_values(values);
        let (on, of) = (self.machine.upload_array(&values)?, self.upload_grouping(by)?);
        let Measured { units, groups } = self.measure_units(self.address_of(&on), &of)?;
        let groups = self.download_moments(&groups, of.groups.groups)?;
        let (Some(units), Some(segments)) = (units, &of.units) else {
            return Ok((widen_values(values), groups));
        };
        let units = self.download_moments(&units, segments.groups)?;
        Ok(((0..values.len()).map(|row| units[by.unit_of_row(row)].mean).collect(), groups))
    }

    fn relative_advantages(
        &self,
        values: &[f64],
        by: &Grouping,
        deviation: Option<&Grouping>,
        options: &Relative,
    ) -> Result<(Vec<f64>, Vec<Moments>), ArithmeticError> {
        assert_same_length("relative", values.len(), by.len());
        let (_, moments) = self.unit_values(values, by)?;
        if options.baseline == Baseline::SecondBest {
            // It has no kernel.
            let (advantages, _) = CpuArithmetic.relative_advantages(
                &widen_values(narrow_values(values)),
                by,
                deviation,
                options,
            )?;
            return Ok((widen_values(narrow_values(&advantages)), moments));
        }
        let mean = self.upload_grouping(by)?;
        let Some(deviation) = deviation else {
            let advantages = self.map_values(values, |values, out| {
                self.relative_at(values, &mean, options, SumBase::NOTHING, out)
            });
            return Ok((advantages?, moments));
        };
        assert_same_length("relative", values.len(), deviation.len());
        let deviation = self.upload_grouping(deviation)?;
        let advantages = self.map_values(values, |values, out| {
            self.relative_rows(values, &mean, Some(&deviation), options, SumBase::NOTHING, out)
        });
        Ok((advantages?, moments))
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
        assert_same_length("step_groups", episodes.len(), steps.episodes.len());
        let (places, anchors) =
            (self.upload_rows(steps.episodes)?, self.upload_segments(steps.anchors)?);
        let returns = self.machine.allocate_array::<f32>(rewards.len().max(1))?;
        let rewards = self.upload_f32(rewards)?;
        let scan = ScanArguments::for_returns(
            self.address_of(&rewards),
            steps.gamma,
            self.address_of(&returns),
        );
        self.scan_at(&scan, &places)?;
        Ok(self.map_values(episodes, |episodes, out| {
            let add = SumBase { to: episodes, weight: steps.weight };
            self.relative_segments(self.address_of(&returns), &anchors, options, add, out)
        })?)
    }

    fn gae_advantages(
        &self,
        rewards: &[f64],
        values: &[f64],
        after: &[f64],
        places: &RaggedRows,
        hops: GaeSteps,
    ) -> Result<(Vec<f64>, Vec<f64>), ArithmeticError> {
        assert_same_length("gae", rewards.len(), places.len());
        assert_same_length("gae", values.len(), places.len());
        assert_same_length("gae", after.len(), places.row_count());
        let places = self.upload_rows(places)?;
        let (values, after) = (self.upload_f32(values)?, self.upload_f32(after)?);
        let returns = self.machine.allocate_array::<f32>(places.len.max(1))?;
        let advantages = self.map_values(rewards, |rewards, advantages| {
            let (values, after, returns) =
                (self.address_of(&values), self.address_of(&after), self.address_of(&returns));
            self.scan_at(
                &ScanArguments { rewards, values, after, hops, advantages, returns },
                &places,
            )
        })?;
        Ok((advantages, widen_values(self.machine.download_array(&returns, places.len)?)))
    }

    fn discounted_returns(
        &self,
        rewards: &[f64],
        places: &RaggedRows,
        gamma: f64,
    ) -> Result<Vec<f64>, ArithmeticError> {
        assert_same_length("returns", rewards.len(), places.len());
        let places = self.upload_rows(places)?;
        Ok(self.map_values(rewards, |rewards, out| {
            self.scan_at(&ScanArguments::for_returns(rewards, gamma, out), &places)
        })?)
    }

    fn whiten_groups(
        &self,
        values: &[f64],
        tokens: &[u32],
        by: &Segments,
    ) -> Result<Vec<f64>, ArithmeticError> {
        assert_same_length("whiten", values.len(), by.len());
        assert_same_length("whiten", tokens.len(), by.len());
        let (tokens, by) = (self.machine.upload_array(tokens)?, self.upload_segments(by)?);
        Ok(self.map_values(values, |values, out| {
            self.whiten_at(values, self.address_of(&tokens), &by, out)
        })?)
    }

    fn subtract_average(
        &self,
        rewards: &[f64],
        seats: &Segments,
        momentum: f64,
        averages: &mut [f64],
    ) -> Result<Vec<f64>, ArithmeticError> {
        assert_same_length("ema", rewards.len(), seats.len());
        assert!(seats.group_count() <= averages.len(), "ema: one average per seat");
        let (seats, moved) = (self.upload_segments(seats)?, self.machine.upload_array(averages)?);
        let advantages = self.map_values(rewards, |rewards, out| {
            self.ema_at(rewards, &seats, momentum, self.address_of(&moved), out)
        })?;
        averages.copy_from_slice(&self.machine.download_array(&moved, averages.len())?);
        Ok(advantages)
    }
}

impl<M: Machine> Kernels<M> {
    fn upload_f32(&self, values: &[f64]) -> Result<M::Array<f32>, M::Error> {
        self.machine.upload_array(&narrow_values(values))
    }

    fn download_moments(
        &self,
        of: &M::Array<f64>,
        groups: usize,
    ) -> Result<Vec<Moments>, M::Error> {
        let numbers = self.machine.download_array(of, 3 * groups)?;
        let groups = numbers.chunks_exact(3).map(|m| Moments { n: m[0], mean: m[1], m2: m[2] });
        Ok(groups.collect())
    }

    /// Runs `f` on the addresses of `values` and of an output of the same length. Returns the output.
    fn map_values(
        &self,
        values: &[f64],
        f: impl FnOnce(u64, u64) -> Result<(), M::Error>,
    ) -> Result<Vec<f64>, M::Error> {
        let (values, n) = (self.upload_f32(values)?, values.len());
        let out = self.machine.allocate_array::<f32>(n.max(1))?;
        f(self.address_of(&values), self.address_of(&out))?;
        Ok(widen_values(self.machine.download_array(&out, n)?))
    }
}

fn narrow_values(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

fn widen_values(values: Vec<f32>) -> Vec<f64> {
    values.into_iter().map(f64::from).collect()
}

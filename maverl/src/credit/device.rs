//! Estimators on a machine of `maverl_kernels::cuda`.

use std::fmt::Display;

use maverl_kernels::advantage::{
    Estimate, GaeSteps, Grouping, Moments, RaggedRows, Relative, Segments,
};
use maverl_kernels::cuda::{Kernels, Machine, StepKernel};
use maverl_kernels::emulate::StepArrays;

use super::backend::{Device, EstimatorKernel};

fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

fn wide(values: Vec<f32>) -> Vec<f64> {
    values.into_iter().map(f64::from).collect()
}

fn failed(error: impl Display) -> String {
    error.to_string()
}

impl<M> Device for Kernels<M>
where
    M: Machine<Error: Display> + Send + Sync,
{
    fn relative(
        &self,
        values: &[f64],
        by: &Grouping,
        deviation: Option<&Grouping>,
        options: &Relative,
    ) -> Result<(Vec<f64>, Vec<Moments>), String> {
        let values = narrow(values);
        let advantages = match deviation {
            None => Estimate::relative(self, &values, by, options),
            Some(deviation) => self.relative_apart(&values, by, deviation, options),
        };
        let (_, moments) = Estimate::units(self, &values, by).map_err(failed)?;
        Ok((wide(advantages.map_err(failed)?), moments))
    }

    fn units(&self, values: &[f64], by: &Grouping) -> Result<(Vec<f64>, Vec<Moments>), String> {
        Estimate::units(self, &narrow(values), by).map_err(failed)
    }

    fn moments(&self, values: &[f64], by: &Segments) -> Result<Vec<Moments>, String> {
        Estimate::moments(self, &narrow(values), by).map_err(failed)
    }

    fn gae(
        &self,
        numbers: [&[f64]; 3],
        places: &RaggedRows,
        steps: GaeSteps,
    ) -> Result<(Vec<f64>, Vec<f64>), String> {
        let [rewards, values, after] = numbers.map(narrow);
        let found = Estimate::gae(self, &rewards, &values, &after, places, steps);
        let (advantages, returns) = found.map_err(failed)?;
        Ok((wide(advantages), wide(returns)))
    }

    fn returns(
        &self,
        rewards: &[f64],
        places: &RaggedRows,
        gamma: f64,
    ) -> Result<Vec<f64>, String> {
        Estimate::returns(self, &narrow(rewards), places, gamma).map(wide).map_err(failed)
    }

    fn whiten(&self, values: &[f64], tokens: &[u32], by: &Segments) -> Result<Vec<f64>, String> {
        Estimate::whiten(self, &narrow(values), tokens, by).map(wide).map_err(failed)
    }

    fn ema(
        &self,
        rewards: &[f64],
        seats: &Segments,
        momentum: f64,
        averages: &mut [f64],
    ) -> Result<Vec<f64>, String> {
        let found = Estimate::ema(self, &narrow(rewards), seats, momentum, averages);
        found.map(wide).map_err(failed)
    }
}

impl<M> EstimatorKernel for StepKernel<M>
where
    M: Machine<Error: Display> + Send + Sync,
{
    fn run(&self, step: &StepArrays, places: usize) -> Result<Vec<f32>, String> {
        Self::run(self, step, places).map_err(failed)
    }
}

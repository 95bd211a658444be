//! Kernels of declared estimators on a machine of `maverl_kernels::cuda`.

use std::fmt::Display;

use maverl_kernels::cuda::{Machine, StepKernel};
use maverl_kernels::emulate::StepArrays;

use super::backend::EstimatorKernel;

impl<M> EstimatorKernel for StepKernel<M>
where
    M: Machine<Error: Display> + Send + Sync,
{
    fn run(&self, step: &StepArrays, places: usize) -> Result<Vec<f32>, String> {
        Self::run_step(self, step, places).map_err(|error| error.to_string())
    }
}

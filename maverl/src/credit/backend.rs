//! Arithmetic of estimators: the functions of `maverl_kernels::advantage` in f64, or the kernels of a device.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use maverl_kernels::advantage::{
    Arithmetic, CpuArithmetic, GaeSteps, Grouping, Moments, RaggedRows, Relative, Segments,
    group_moments, unit_values,
};
use maverl_kernels::emulate::StepArrays;

use super::{Advantage, RewardedStep, kernel};

/// The CPU.
pub(crate) static CPU: Estimators =
    Estimators { device: None, kernel: None, failure: Mutex::new(None) };

/// Place where the estimators of a run are computed: the [`Arithmetic`] of the CPU, or of a device.
///
/// Its methods cannot fail, so that an estimator is written once for both: after an error of the device a result is NaN, or
/// the CPU's for moments, and [`Estimators::failure`] returns the error, which ends the run.
#[derive(Default)]
pub(crate) struct Estimators {
    device: Option<(String, Box<dyn Arithmetic>)>,
    /// Kernel of the declared estimator of the run, with the name of its file.
    kernel: Option<(&'static str, Box<dyn EstimatorKernel>)>,
    failure: Mutex<Option<String>>,
}

/// Kernel of a declared estimator on a device.
pub(crate) trait EstimatorKernel: Send + Sync {
    /// Computes the advantages of a step, `[places]`.
    fn run(&self, step: &StepArrays, places: usize) -> Result<Vec<f32>, String>;
}

impl fmt::Debug for Estimators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Estimators")
            .field("device", &self.device())
            .field("kernel", &self.kernel())
            .finish_non_exhaustive()
    }
}

impl Estimators {
    /// Estimators on a device of a name.
    #[cfg(feature = "cuda")]
    pub(crate) fn on(name: String, device: Box<dyn Arithmetic>) -> Self {
        Self { device: Some((name, device)), ..Self::default() }
    }

    /// The same, with a kernel of the declared estimator, which replaces its Rust function.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub(crate) fn with_kernel(self, file: &'static str, kernel: Box<dyn EstimatorKernel>) -> Self {
        Self { kernel: Some((file, kernel)), ..self }
    }

    /// Name of the device; none on the CPU.
    pub(crate) fn device(&self) -> Option<&str> {
        self.device.as_ref().map(|(name, _)| name.as_str())
    }

    /// File of the kernel of the declared estimator; none if its Rust function is used.
    pub(crate) fn kernel(&self) -> Option<&'static str> {
        self.kernel.as_ref().map(|(file, _)| *file)
    }

    /// Removes and returns the first error of the device.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns a result, or NaN after an error.
    fn or_nan<T, E: ToString>(&self, result: Result<T, E>, nan: impl FnOnce() -> T) -> T {
        result.unwrap_or_else(|error| {
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert(error.to_string());
            nan()
        })
    }

    fn arithmetic(&self) -> &dyn Arithmetic {
        match &self.device {
            Some((_, device)) => &**device,
            None => &CpuArithmetic,
        }
    }

    /// Rounds numbers to those of a device; on the CPU they stay as they are.
    pub(crate) fn round(&self, values: &mut [f64]) {
        if self.device.is_some() {
            values.iter_mut().for_each(|value| *value = f64::from(*value as f32));
        }
    }

    /// See [`Arithmetic::relative_advantages`].
    pub(crate) fn relative(
        &self,
        values: &[f64],
        by: &Grouping,
        deviation: Option<&Grouping>,
        options: &Relative,
    ) -> (Vec<f64>, Vec<Moments>) {
        let found = self.arithmetic().relative_advantages(values, by, deviation, options);
        self.or_nan(found, || (not_a_number(values), unit_values(values, by).1))
    }

    /// See [`Arithmetic::unit_values`].
    pub(crate) fn units(&self, values: &[f64], by: &Grouping) -> (Vec<f64>, Vec<Moments>) {
        self.or_nan(self.arithmetic().unit_values(values, by), || unit_values(values, by))
    }

    /// See [`Arithmetic::group_moments`].
    pub(crate) fn moments(&self, values: &[f64], by: &Segments) -> Vec<Moments> {
        self.or_nan(self.arithmetic().group_moments(values, by), || group_moments(values, by))
    }

    /// See [`Arithmetic::gae_advantages`].
    pub(crate) fn gae(
        &self,
        rewards: &[f64],
        values: &[f64],
        after: &[f64],
        places: &RaggedRows,
        steps: GaeSteps,
    ) -> (Vec<f64>, Vec<f64>) {
        let found = self.arithmetic().gae_advantages(rewards, values, after, places, steps);
        self.or_nan(found, || (not_a_number(rewards), not_a_number(rewards)))
    }

    /// See [`Arithmetic::discounted_returns`].
    pub(crate) fn returns(&self, rewards: &[f64], places: &RaggedRows, gamma: f64) -> Vec<f64> {
        let found = self.arithmetic().discounted_returns(rewards, places, gamma);
        self.or_nan(found, || not_a_number(rewards))
    }

    /// See [`Arithmetic::whiten_groups`].
    pub(crate) fn whiten(&self, values: &[f64], tokens: &[u32], by: &Segments) -> Vec<f64> {
        let found = self.arithmetic().whiten_groups(values, tokens, by);
        self.or_nan(found, || not_a_number(values))
    }

    /// See [`Arithmetic::subtract_average`].
    pub(crate) fn ema(
        &self,
        rewards: &[f64],
        seats: &Segments,
        momentum: f64,
        averages: &mut [f64],
    ) -> Vec<f64> {
        let found = self.arithmetic().subtract_average(rewards, seats, momentum, averages);
        self.or_nan(found, || not_a_number(rewards))
    }

    /// Computes the advantages of a step by the declared estimator of the run: by its kernel if there is one here, or else
    /// by its Rust function.
    pub(crate) fn estimate(&self, step: &RewardedStep<'_>, estimator: &dyn Advantage) -> Vec<f64> {
        let view = step.view_on(self);
        let places = if estimator.by_token() { view.tokens() } else { view.len() };
        let Some((_, kernel)) = &self.kernel else {
            let mut out = vec![0.0; places];
            estimator.estimate(&view, &mut out);
            self.round(&mut out);
            return out;
        };
        let found = kernel.run(&kernel::arrays(step), places);
        let wide = found.map(|out| out.into_iter().map(f64::from).collect());
        self.or_nan(wide, || vec![f64::NAN; places])
    }
}

/// Returns NaN in place of each number.
fn not_a_number(values: &[f64]) -> Vec<f64> {
    vec![f64::NAN; values.len()]
}

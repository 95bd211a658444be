//! Comparison of a device with the CPU on one training step, for `maverl device check`.

use std::ops::Range;

use maverl_kernels::matmul::Precision;

use super::device::{KEY, OpenDevice, refused_device};
use super::packed::PackedRows;
use super::{DeviceChoice, Row, RuntimeError};
use crate::files::{ModelError, ModelFiles, ModelSource};
use crate::net::ops::{Backend, Cpu};
use crate::net::{Gradients, Model, Pool, Tape};

/// Differences of a device from the CPU, both with products of one precision: f32 on candle, bf16 on others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepDifference {
    /// Number of scored tokens.
    pub tokens: usize,
    /// Largest difference of a log-prob.
    pub logprob: f32,
    /// Mean absolute difference of log-probs.
    pub mean: f64,
    /// Cosine of the gradients of all weights.
    pub cosine: f64,
    /// Largest difference of a log-prob from the CPU's products in f32: that of the CPU's products of the precision, and that of the
    /// device.
    pub from_f32: [f32; 2],
}

/// Log-probs of completions, and the gradients of their weighted sum.
pub(super) struct ScoredRows {
    pub(super) logprobs: Vec<f32>,
    pub(super) gradients: Vec<f32>,
}

/// Computes log-probs of rows and the gradients of their weighted sum on a device and on the CPU.
///
/// # Errors
///
/// If the model cannot be read, or the device fails.
pub fn compare_step(
    device: DeviceChoice,
    source: &ModelSource,
    rows: &[Row],
) -> Result<StepDifference, RuntimeError> {
    let precision =
        if device == DeviceChoice::CandleCpu { Precision::F32 } else { Precision::Bf16 };
    let (model, exact, cpu) = score_on_cpu(source, rows, precision)
        .map_err(|error| error.in_worker(device.to_string()))?;
    let opened = OpenDevice::open(device).map_err(|reason| refused_device(KEY, device, reason));
    let found = match &opened?.0 {
        OpenDevice::Cpu => score_and_differentiate(&Cpu { precision }, &model, rows),
        #[cfg(feature = "candle")]
        OpenDevice::Candle(ops) => score_and_differentiate(ops, &model, rows),
        #[cfg(feature = "cuda")]
        OpenDevice::Emulated(ops) => score_and_differentiate(ops, &model, rows),
        #[cfg(feature = "cuda")]
        OpenDevice::Cuda(ops) => score_and_differentiate(ops, &model, rows),
    };
    let found = found.map_err(|error| error.in_worker(device.to_string()))?;
    Ok(StepDifference::of(&exact, &cpu, &found))
}

/// Loads a model, and scores rows on the CPU with products in f32, then in a precision.
fn score_on_cpu(
    source: &ModelSource,
    rows: &[Row],
    precision: Precision,
) -> Result<(Model, ScoredRows, ScoredRows), ModelError> {
    let model = Model::load(&ModelFiles::new(source))?;
    let exact = score_and_differentiate(&Cpu { precision: Precision::F32 }, &model, rows)?;
    let rounded = score_and_differentiate(&Cpu { precision }, &model, rows)?;
    Ok((model, exact, rounded))
}

impl StepDifference {
    fn of(exact: &ScoredRows, cpu: &ScoredRows, device: &ScoredRows) -> Self {
        let (a, b) = (&cpu.gradients, &device.gradients);
        let between = logprob_differences(cpu, device);
        let sum: f64 = between.iter().copied().map(f64::from).sum();
        Self {
            tokens: between.len(),
            logprob: largest(&between),
            mean: sum / between.len().max(1) as f64,
            cosine: dot_product(a, b) / (dot_product(a, a) * dot_product(b, b)).sqrt(),
            from_f32: [cpu, device].map(|scored| largest(&logprob_differences(exact, scored))),
        }
    }
}

/// Returns the differences of log-probs.
fn logprob_differences(a: &ScoredRows, b: &ScoredRows) -> Vec<f32> {
    a.logprobs.iter().zip(&b.logprobs).map(|(a, b)| (a - b).abs()).collect()
}

fn dot_product(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

fn largest(values: &[f32]) -> f32 {
    values.iter().copied().fold(0.0, f32::max)
}

/// Computes the log-probs of completions, and the gradients of their sum with the rows' first advantages as weights.
pub(super) fn score_and_differentiate<O: Backend>(
    ops: &O,
    model: &Model,
    rows: &[Row],
) -> Result<ScoredRows, ModelError> {
    let model = ops.load(model.clone(), true)?;
    let rows: Vec<&Row> = rows.iter().collect();
    let packed = PackedRows::of_rows(&rows, true);
    let (mut pool, decoder) = (Pool::default(), &model.decoder);
    let logprobs = packed.logprobs(decoder, &mut pool)?;
    let mut gradients = Gradients::on(ops, model.trainable())?;
    let tape = Tape::record(decoder, packed.rows(), false, &mut pool)?;
    let hidden = packed.predicting(ops, tape.hidden())?;
    let (of, ends) = (packed.predicted(), &packed.completions);
    let dhidden = decoder.loss(&hidden, of, ends, &mut gradients, |some, _, derivatives| {
        weigh_logprobs(&rows, ends, some, derivatives);
        Ok(())
    })?;
    let dhidden = packed.spread(ops, &dhidden)?;
    tape.backward(&dhidden, &mut gradients, &mut pool)?;
    let gradients = ops.read_sums(gradients.all_sums()?)?.into_owned();
    Ok(ScoredRows { logprobs, gradients })
}

/// Writes the derivatives of the weighted sum of log-probs of some rows.
fn weigh_logprobs(
    rows: &[&Row],
    completions: &[usize],
    some: Range<usize>,
    [dlogp, dentropy]: [&mut [f32]; 2],
) {
    let start = completions[some.start];
    for row in some {
        let weight = rows[row].advantages.first().copied().unwrap_or(1.0);
        dlogp[completions[row] - start..completions[row + 1] - start].fill(weight);
    }
    dentropy.fill(0.0);
}

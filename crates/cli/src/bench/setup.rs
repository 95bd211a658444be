//! Settings of a benchmark.

use std::num::NonZeroUsize;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::number;

/// Settings with which every part is measured.
#[derive(Args, Debug, Clone)]
pub struct Setup {
    /// Shape of the model: S has 1.1 M parameters, M 26.8 M, L 494 M as Qwen2.5-0.5B.
    #[arg(long, value_name = "SIZE", default_value = "S", ignore_case = true)]
    pub size: BenchSize,
    /// Precision of matrix products.
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    pub dtype: BenchDtype,
    /// Threads of the numeric kernels; 0 is one per core.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::from_0)]
    pub threads: usize,
    /// Number of measurements of each figure.
    #[arg(long, value_name = "N", default_value = "5", value_parser = number::from_1)]
    pub repeats: NonZeroUsize,
    /// Override a key of `[runtime]`, as `--set runtime.micro_batch_tokens=2048`, or `gradient_checkpointing` of the model;
    /// can be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Print one line of JSON per part, with every measurement.
    #[arg(long)]
    pub json: bool,
}

/// Measured shapes of `new-model`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum BenchSize {
    /// 1.1 million parameters.
    #[value(name = "S")]
    S,
    /// 26.8 million parameters.
    #[value(name = "M")]
    M,
    /// 494 million parameters.
    #[value(name = "L")]
    L,
}

/// Number type of matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BenchDtype {
    /// Single precision.
    F32,
    /// Factors in bf16, sums in single precision.
    Bf16,
    /// Factors in f16, sums in single precision.
    F16,
}

/// Formats a value as on the command line.
pub fn written_option(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

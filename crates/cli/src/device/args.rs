//! Arguments of `maverl device`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::{number, paths};
use maverl::runtime::DeviceChoice;

#[derive(Args)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "such a program only refuses them"))]
pub(crate) struct CompileArgs {
    /// Architectures. [default: sm_80,sm_90,sm_100,sm_120]
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    pub(super) arch: Vec<String>,
    /// File to write, or a directory to write `maverl.cubins` in.
    #[arg(long, value_name = "PATH", value_parser = paths::to_write(), default_value = "maverl.cubins")]
    pub(super) out: PathBuf,
}

#[derive(Args)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "such a program only refuses them"))]
pub(crate) struct CheckArgs {
    /// Device: `cuda`, `cuda:1`, `candle:cpu`, or `emulated`.
    #[arg(value_name = "NAME")]
    pub(super) device: DeviceChoice,
    /// Parts to run. [default: all; on the emulated device, those without a speed; on candle, those without kernels]
    #[arg(value_name = "PART")]
    pub(super) parts: Vec<DevicePart>,
    /// Minutes after which no further measurement begins.
    #[arg(long, value_name = "N", default_value_t = 9.0, value_parser = number::seconds)]
    pub(super) minutes: f64,
    /// Run only checks of kernels whose name contains this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(super) only: String,
    /// Shapes of Qwen2.5 whose rollout and training are measured, if the device has the memory.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "0.5b,1.5b,3b")]
    pub(super) sizes: Vec<ModelSize>,
    /// Peak of products in bf16, in TFLOP/s. [default: by the name of the device]
    #[arg(long, value_name = "N", value_parser = number::seconds)]
    pub(super) peak: Option<f64>,
    /// Print a line of JSON for each result.
    #[arg(long)]
    pub(super) json: bool,
}

/// Parts of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DevicePart {
    /// Device, libraries, memory.
    Device,
    /// Every kernel against f64 and the CPU.
    Parity,
    /// Completions alone and in a batch, and scored again: equal to the bit, or within the bound of the device.
    Invariance,
    /// Log-probs and gradients against the CPU.
    Step,
    /// Speed of every kernel.
    Kernels,
    /// Tokens per second of rollout.
    Rollout,
    /// Tokens per second of training, and memory.
    Training,
    /// The search team on the built-in model, beside the CPU.
    Team,
}

/// Shapes of Qwen2.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ModelSize {
    #[value(name = "0.5b")]
    Half,
    #[value(name = "1.5b")]
    OneAndAHalf,
    #[value(name = "3b")]
    Three,
    #[value(name = "7b")]
    Seven,
}

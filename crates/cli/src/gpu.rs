//! `maverl gpu`: machine code of the kernels in a file, and a check of everything on a device.

#[cfg(feature = "cuda")]
mod check;
#[cfg(feature = "cuda")]
mod compile;
#[cfg(feature = "cuda")]
mod models;
#[cfg(feature = "cuda")]
mod parity;
#[cfg(feature = "cuda")]
mod policy;
#[cfg(feature = "cuda")]
mod report;
#[cfg(feature = "cuda")]
mod rollout;
#[cfg(feature = "cuda")]
mod speed;
#[cfg(feature = "cuda")]
mod team;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::{Failure, number, paths};
use maverl::runtime::DeviceChoice;

#[derive(Subcommand)]
pub(super) enum GpuCommand {
    /// Compile the kernels into a file, for machines that have a driver and no NVRTC.
    ///
    /// Needs NVRTC and no GPU. The program loads the file that `MAVERL_KERNELS` names, or `maverl.cubins` beside it; without
    /// either, it compiles the kernels when a device is opened. A file of another version of the sources is refused.
    Compile(CompileArgs),
    /// Check and measure everything on a device, one line at a time.
    ///
    /// Prints whether kernels agree with the CPU, whether a completion depends on its batch, how a training step differs from
    /// that of the CPU, and the speed of kernels, rollout and training. A part that has no time left is skipped, with a line
    /// that says so. Exits with 1 if a check fails, and with 2 if the device cannot be opened.
    Check(CheckArgs),
}

#[derive(Args)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "such a program only refuses them"))]
pub(super) struct CompileArgs {
    /// Architectures. [default: sm_80,sm_90,sm_100,sm_120]
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    arch: Vec<String>,
    /// File to write, or a directory to write `maverl.cubins` in.
    #[arg(long, value_name = "PATH", value_parser = paths::to_write(), default_value = "maverl.cubins")]
    out: PathBuf,
}

#[derive(Args)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "such a program only refuses them"))]
pub(super) struct CheckArgs {
    /// Parts to run. [default: all; on the emulated device, those without a speed]
    #[arg(value_name = "PART")]
    parts: Vec<Part>,
    /// Device: `cuda`, `cuda:1`, or `emulated`.
    #[arg(long, value_name = "DEVICE", default_value = "cuda")]
    device: DeviceChoice,
    /// Minutes after which no further measurement begins.
    #[arg(long, value_name = "N", default_value_t = 9.0, value_parser = number::seconds)]
    minutes: f64,
    /// Run only checks of kernels whose name contains this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Shapes of Qwen2.5 whose rollout and training are measured, if the device has the memory.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "0.5b,1.5b,3b")]
    sizes: Vec<Size>,
    /// Peak of products in bf16, in TFLOP/s. [default: by the name of the device]
    #[arg(long, value_name = "N", value_parser = number::seconds)]
    peak: Option<f64>,
    /// Print a line of JSON for each result.
    #[arg(long)]
    json: bool,
}

/// Parts of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    /// Device, libraries, memory.
    Device,
    /// Every kernel against f64 and the CPU.
    Parity,
    /// Completions alone and in a batch, and scored again: equal to the bit.
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
enum Size {
    #[value(name = "0.5b")]
    Half,
    #[value(name = "1.5b")]
    OneAndAHalf,
    #[value(name = "3b")]
    Three,
    #[value(name = "7b")]
    Seven,
}

#[cfg(feature = "cuda")]
pub(super) fn gpu(command: &GpuCommand) -> Result<ExitCode, Failure> {
    match command {
        GpuCommand::Compile(args) => compile::compile(args),
        GpuCommand::Check(args) => check::check(args),
    }
}

#[cfg(not(feature = "cuda"))]
pub(super) fn gpu(_: &GpuCommand) -> Result<ExitCode, Failure> {
    super::tell(format_args!("error: {}", maverl::lacks_feature!("cuda", "maverl-cli")));
    Ok(ExitCode::from(2))
}

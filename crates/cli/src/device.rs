//! `maverl device`: machine code of the kernels in a file, and a check of everything on a device.

mod args;
#[cfg(feature = "candle")]
mod candle;
#[cfg(feature = "cuda")]
mod check;
#[cfg(feature = "cuda")]
mod checked;
#[cfg(feature = "cuda")]
mod compile;
#[cfg(feature = "cuda")]
mod models;
#[cfg(feature = "cuda")]
mod parity;
#[cfg(feature = "cuda")]
mod policy;
#[cfg(any(feature = "cuda", feature = "candle"))]
mod report;
#[cfg(feature = "cuda")]
mod rollout;
#[cfg(feature = "cuda")]
mod speed;
#[cfg(feature = "cuda")]
mod team;

use std::process::ExitCode;

use clap::Subcommand;

use super::Failure;
use args::{CheckArgs, CompileArgs};
use maverl::runtime::DeviceChoice;

/// Exit code where no device can be opened.
const NO_DEVICE: u8 = 2;

#[derive(Subcommand)]
pub(super) enum DeviceCommand {
    /// Compile the kernels of GPUs into a file, for machines that have a driver and no NVRTC.
    ///
    /// Needs NVRTC and no GPU. The program loads the file that `MAVERL_KERNELS` names, or `maverl.cubins` beside it; without
    /// either, it compiles the kernels when a device is opened. A file of another version of the sources is refused.
    Compile(CompileArgs),
    /// Check and measure everything on a device, one line at a time.
    ///
    /// Prints whether kernels agree with the CPU, whether a completion depends on its batch, how a training step differs from
    /// that of the CPU, and the speed of kernels, rollout and training. On candle, results agree within bounds, and its speed
    /// is printed beside the CPU's. A part that has no time left is skipped, with a line
    /// that says so. Exits with 1 if a check fails, and with 2 if the device cannot be opened.
    Check(CheckArgs),
}

/// Runs a command about devices.
pub(super) fn device(command: &DeviceCommand) -> Result<ExitCode, Failure> {
    match command {
        DeviceCommand::Compile(args) => compile_kernels(args),
        DeviceCommand::Check(args) => match args.device {
            DeviceChoice::Cpu | DeviceChoice::Auto => Err(Failure(format!(
                "`{}` is not compared: devices are compared with the CPU; write `cuda`, `cuda:1`, `candle:cpu` or \
                 `emulated`",
                args.device
            ))),
            DeviceChoice::CandleCpu => check_candle(args),
            _ => check_kernels(args),
        },
    }
}

#[cfg(feature = "cuda")]
fn compile_kernels(args: &CompileArgs) -> Result<ExitCode, Failure> {
    compile::compile(args)
}

#[cfg(not(feature = "cuda"))]
fn compile_kernels(_: &CompileArgs) -> Result<ExitCode, Failure> {
    Ok(not_built(maverl::lacks_feature!("cuda", "maverl-cli")))
}

#[cfg(feature = "cuda")]
fn check_kernels(args: &CheckArgs) -> Result<ExitCode, Failure> {
    check::check(args)
}

#[cfg(not(feature = "cuda"))]
fn check_kernels(_: &CheckArgs) -> Result<ExitCode, Failure> {
    Ok(not_built(maverl::lacks_feature!("cuda", "maverl-cli")))
}

#[cfg(feature = "candle")]
fn check_candle(args: &CheckArgs) -> Result<ExitCode, Failure> {
    Ok(candle::check(args))
}

#[cfg(not(feature = "candle"))]
fn check_candle(_: &CheckArgs) -> Result<ExitCode, Failure> {
    Ok(not_built(maverl::lacks_feature!("candle", "maverl-cli")))
}

/// Prints what a program without a feature lacks.
#[cfg(not(all(feature = "cuda", feature = "candle")))]
fn not_built(what: &str) -> ExitCode {
    super::tell(format_args!("error: {what}"));
    ExitCode::from(NO_DEVICE)
}

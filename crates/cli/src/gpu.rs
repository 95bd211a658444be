//! `maverl gpu`: machine code of the kernels in a file, and a check of everything on a device.

mod args;
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
#[cfg(feature = "cuda")]
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

//! `maverl gpu check`: the parts in their order.

use std::process::ExitCode;

use clap::ValueEnum;
use maverl_kernels::cuda::{Gpu, find_libraries};

use super::args::{CheckArgs, GpuPart};
use super::checked::Checked;
use super::report::{GpuReport, Line};
use super::{models, parity, policy, rollout, speed, team};
use crate::{Failure, tell};
use maverl::runtime::{DeviceChoice, DeviceKernels};

/// Exit code where no device can be opened.
const NO_DEVICE: u8 = 2;

/// Parts that measure speed, which the emulated device does not have.
const MEASURED: [GpuPart; 4] =
    [GpuPart::Kernels, GpuPart::Rollout, GpuPart::Training, GpuPart::Team];

/// Runs the parts on a device.
pub(super) fn check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let opened = match args.device {
        DeviceChoice::Cpu | DeviceChoice::Auto => {
            return Err(Failure(format!(
                "`--device {}` has no kernels; write `cuda`, `cuda:1` or `emulated`",
                args.device
            )));
        }
        device => DeviceKernels::open(device),
    };
    let (kernels, name) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            tell(format_args!("error: {error}"));
            return Ok(ExitCode::from(NO_DEVICE));
        }
    };
    let peak = args.peak.or_else(|| models::peak(&name)).map(|peak| peak * 1e12);
    let report = GpuReport::new(args.json, args.minutes);
    let mut checked = Checked { args, kernels, peak, copy: None, report };
    let emulated = args.device == DeviceChoice::Emulated;
    let parts: Vec<GpuPart> = if args.parts.is_empty() {
        let all = GpuPart::value_variants().iter().copied();
        all.filter(|part| !emulated || !MEASURED.contains(part)).collect()
    } else {
        args.parts.clone()
    };
    for part in parts {
        if emulated && MEASURED.contains(&part) {
            let note = "skipped: the emulated device has no speed";
            checked.report.add(part, &Line::note("all", note));
        } else if checked.report.has_time() {
            checked.part(part, &name);
        } else {
            checked.report.add(part, &Line::note("all", "skipped: no time left (`--minutes`)"));
        }
    }
    let GpuReport { checks, failures, .. } = checked.report;
    tell(format_args!("{} of {checks} checks passed", checks - failures));
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Checked<'_> {
    /// Runs a part. An error ends the part alone.
    fn part(&mut self, part: GpuPart, name: &str) {
        let done = match part {
            GpuPart::Device => self.device(name),
            GpuPart::Parity => parity::parity(self),
            GpuPart::Invariance => policy::invariance(self),
            GpuPart::Step => policy::step(self),
            GpuPart::Kernels => speed::kernels(self),
            GpuPart::Rollout => rollout::rollout(self),
            GpuPart::Training => policy::training(self),
            GpuPart::Team => team::team(self),
        };
        if let Err(Failure(message)) = done {
            self.report.add(part, &Line::check("the part", false, message));
        }
    }

    /// Lists the device, its libraries and its memory.
    fn device(&mut self, name: &str) -> Result<(), Failure> {
        let part = GpuPart::Device;
        let version = format!("maverl {}, kernels {:.12}", env!("CARGO_PKG_VERSION"), sources());
        self.report.add(part, &Line::note("program", version));
        self.report.add(part, &Line::note("device", name));
        for library in find_libraries() {
            let state = library.found.unwrap_or_else(|missing| missing);
            self.report.add(part, &Line::note(library.name, state));
        }
        if let DeviceChoice::Cuda(number) = self.args.device {
            self.report.add(part, &Line::note("code", Gpu::code_origin(number)?));
        }
        if let DeviceKernels::Cuda(gpu) = &self.kernels {
            let by = gpu.library_version().map(|version| format!("by cuBLASLt {version}"));
            let by = by.unwrap_or_else(|missing| missing.to_string());
            self.report.add(part, &Line::note("backward products", by));
        }
        if let Some(bytes) = self.memory()? {
            let [free, total] = bytes.map(|bytes| bytes as f64 / f64::from(1 << 30));
            let line = Line::value("memory", total, "GiB");
            self.report.add(part, &line.with(format!("{free:.1} GiB free")));
        }
        if let Some(peak) = self.peak {
            let line = Line::value("peak of products in bf16", peak / 1e12, "TFLOP/s");
            self.report.add(part, &line.with("from its data sheet, or `--peak`"));
        }
        Ok(())
    }
}

fn sources() -> String {
    maverl_kernels::cuda::cubins::hash_sources()
}

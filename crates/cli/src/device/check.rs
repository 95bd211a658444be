//! `maverl device check`: the parts in their order.

use std::process::ExitCode;

use clap::ValueEnum;
use maverl_kernels::cuda::{Gpu, find_libraries};

use super::NO_DEVICE;
use super::args::{CheckArgs, DevicePart};
use super::checked::Checked;
use super::report::{DeviceReport, Line};
use super::{models, parity, policy, rollout, speed, team};
use crate::{Failure, tell};
use maverl::runtime::{DeviceChoice, DeviceKernels};

/// Parts that measure speed, which the emulated device does not have.
const MEASURED: [DevicePart; 4] =
    [DevicePart::Kernels, DevicePart::Rollout, DevicePart::Training, DevicePart::Team];

/// Runs the parts on a device.
pub(super) fn check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let (kernels, name) = match DeviceKernels::open(args.device) {
        Ok(opened) => opened,
        Err(error) => {
            tell(format_args!("error: {error}"));
            return Ok(ExitCode::from(NO_DEVICE));
        }
    };
    let peak = args.peak.or_else(|| models::peak(&name)).map(|peak| peak * 1e12);
    let report = DeviceReport::new(args.json, args.minutes);
    let mut checked = Checked { args, kernels, peak, copy: None, report };
    let emulated = args.device == DeviceChoice::Emulated;
    let parts: Vec<DevicePart> = if args.parts.is_empty() {
        let all = DevicePart::value_variants().iter().copied();
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
    Ok(checked.report.end())
}

impl Checked<'_> {
    /// Runs a part. An error ends the part alone.
    fn part(&mut self, part: DevicePart, name: &str) {
        let done = match part {
            DevicePart::Device => self.device(name),
            DevicePart::Parity => parity::parity(self),
            DevicePart::Invariance => policy::invariance(self),
            DevicePart::Step => policy::step(self),
            DevicePart::Kernels => speed::kernels(self),
            DevicePart::Rollout => rollout::rollout(self),
            DevicePart::Training => policy::training(self),
            DevicePart::Team => team::team(self),
        };
        if let Err(Failure(message)) = done {
            self.report.add(part, &Line::check("the part", false, message));
        }
    }

    /// Lists the device, its libraries and its memory.
    fn device(&mut self, name: &str) -> Result<(), Failure> {
        let part = DevicePart::Device;
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

//! `maverl gpu check`: the parts in their order.

use std::process::ExitCode;

use clap::ValueEnum;
use maverl_kernels::cuda::{Gpu, find_libraries};

use super::report::{Line, Report};
use super::{CheckArgs, Part, models, parity, policy, rollout, speed, team};
use crate::{Failure, tell};
use maverl::runtime::{DeviceChoice, DeviceKernels};

/// Exit code where no device can be opened.
const NO_DEVICE: u8 = 2;

/// A device that is checked, with its limits.
pub(super) struct Checked<'a> {
    pub(super) args: &'a CheckArgs,
    pub(super) kernels: DeviceKernels,
    /// Peak of products, in operations a second, if it is known.
    pub(super) peak: Option<f64>,
    /// Bandwidth of a copy, in bytes a second, once it is measured.
    pub(super) copy: Option<f64>,
    pub(super) report: Report,
}

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
    let report = Report::new(args.json, args.minutes);
    let mut checked = Checked { args, kernels, peak, copy: None, report };
    let emulated = args.device == DeviceChoice::Emulated;
    let measured =
        |part: &Part| !matches!(part, Part::Kernels | Part::Rollout | Part::Training | Part::Team);
    let parts: Vec<Part> = match args.parts.is_empty() {
        true => Part::value_variants()
            .iter()
            .copied()
            .filter(|part| !emulated || measured(part))
            .collect(),
        false => args.parts.clone(),
    };
    for part in parts {
        if emulated && !measured(&part) {
            let note = "skipped: the emulated device has no speed";
            checked.report.add(part, &Line::note("all", note));
        } else if checked.report.has_time() {
            checked.part(part, &name);
        } else {
            checked.report.add(part, &Line::note("all", "skipped: no time left (`--minutes`)"));
        }
    }
    let Report { checks, failures, .. } = checked.report;
    tell(format_args!("{} of {checks} checks passed", checks - failures));
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Checked<'_> {
    /// Runs a part. An error ends the part alone.
    fn part(&mut self, part: Part, name: &str) {
        let done = match part {
            Part::Device => self.device(name),
            Part::Parity => parity::parity(self),
            Part::Invariance => policy::invariance(self),
            Part::Step => policy::step(self),
            Part::Kernels => speed::kernels(self),
            Part::Rollout => rollout::rollout(self),
            Part::Training => policy::training(self),
            Part::Team => team::team(self),
        };
        if let Err(Failure(message)) = done {
            self.report.add(part, &Line::check("the part", false, message));
        }
    }

    /// Lists the device, its libraries and its memory.
    fn device(&mut self, name: &str) -> Result<(), Failure> {
        let part = Part::Device;
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
        if let Some([free, total]) = self.memory()? {
            let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
            let line = Line::value("memory", gib(total), "GiB");
            self.report.add(part, &line.with(format!("{:.1} GiB free", gib(free))));
        }
        if let Some(peak) = self.peak {
            let line = Line::value("peak of products in bf16", peak / 1e12, "TFLOP/s");
            self.report.add(part, &line.with("from its data sheet, or `--peak`"));
        }
        Ok(())
    }

    /// Returns the free and total bytes of the memory of a GPU.
    pub(super) fn memory(&self) -> Result<Option<[u64; 2]>, Failure> {
        match &self.kernels {
            DeviceKernels::Cuda(gpu) => Ok(Some(gpu.memory_bytes()?)),
            _ => Ok(None),
        }
    }
}

fn sources() -> String {
    maverl_kernels::cuda::cubins::hash_sources()
}

//! `maverl info` without a run: what this machine and this binary have.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::{Failure, print, terminal};
use maverl::output;
use maverl::runtime::DeviceChoice;
use maverl::table::paragraphs;
use maverl::train::{features, own_name};

/// The machine and the binary.
#[derive(Debug, Serialize)]
struct MachineSummary {
    version: &'static str,
    features: Vec<&'static str>,
    without_features: Vec<&'static str>,
    processor: Processor,
    gpus: Vec<GpuEntry>,
    /// Reason why there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_gpu: Option<String>,
    libraries: Vec<LibraryEntry>,
    devices: Vec<DeviceSummary>,
}

#[derive(Debug, Serialize)]
struct Processor {
    threads: usize,
    /// Paths of vector instructions, the best one last.
    paths: Vec<&'static str>,
    /// Path in use.
    used: &'static str,
}

/// A GPU.
#[derive(Debug, Clone, Serialize)]
pub(super) struct GpuEntry {
    pub(super) device: String,
    pub(super) name: String,
    pub(super) memory_bytes: u64,
    pub(super) compute_capability: String,
}

/// A library that devices need.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LibraryEntry {
    pub(super) name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) found: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) missing: Option<String>,
}

/// A value of `runtime.device`.
#[derive(Debug, Serialize)]
struct DeviceSummary {
    device: String,
    /// Reason why it cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    unavailable: Option<String>,
}

/// Prints what the machine and the binary have.
pub(super) fn machine(json: bool) -> Result<ExitCode, Failure> {
    let machine = MachineSummary::find()?;
    let text = if json { output::json(&machine)? } else { machine.text(terminal::width()) };
    print(&own_name(&text))
}

fn list_names(names: &[&str]) -> String {
    if names.is_empty() { "(none)".to_owned() } else { names.join(", ") }
}

/// Returns the absolute path that an environment variable names.
pub(crate) fn directory_variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute())
}

/// Returns the Cargo features that this program has, or those that it lacks.
pub(crate) fn features_that(are_there: bool) -> Vec<&'static str> {
    features().into_iter().filter(|(_, has)| *has == are_there).map(|(name, _)| name).collect()
}

impl MachineSummary {
    fn find() -> Result<Self, Failure> {
        let used = maverl_kernels::simd::select_path()?.name();
        let paths =
            maverl_kernels::simd::available_paths().into_iter().map(|path| path.name()).collect();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let (gpus, no_gpu) = match gpus() {
            Ok(gpus) if gpus.is_empty() => (gpus, Some("the driver lists no GPU".to_owned())),
            Ok(gpus) => (gpus, None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        let numbered = (0..gpus.len().max(1)).map(DeviceChoice::Cuda);
        let choices = [DeviceChoice::Cpu].into_iter().chain(numbered);
        let others = [DeviceChoice::CandleCpu, DeviceChoice::Emulated];
        let devices = choices
            .chain(others)
            .map(|choice| DeviceSummary {
                device: choice.to_string(),
                unavailable: choice.unavailable(),
            })
            .collect();
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            features: features_that(true),
            without_features: features_that(false),
            processor: Processor { threads, paths, used },
            gpus,
            no_gpu,
            libraries: libraries(),
            devices,
        })
    }

    fn text(&self, width: usize) -> String {
        let Self { version, features, without_features, processor, .. } = self;
        let Processor { threads, paths, used } = processor;
        let mut lines = vec![
            ("maverl", (*version).to_owned()),
            (
                "features",
                format!("{}; not built: {}", list_names(features), list_names(without_features)),
            ),
            ("processor", format!("{threads} threads; has {}; uses {used}", paths.join(", "))),
        ];
        for GpuEntry { device, name, memory_bytes, compute_capability } in &self.gpus {
            let gib = *memory_bytes as f64 / f64::from(1 << 30);
            let text =
                format!("{device}: {name}, {gib:.1} GiB, compute capability {compute_capability}");
            lines.push(("gpu", text));
        }
        lines.extend(self.no_gpu.as_ref().map(|reason| ("gpu", format!("none: {reason}"))));
        for LibraryEntry { name, found, missing } in &self.libraries {
            let state = found.as_ref().or(missing.as_ref()).map_or("", String::as_str);
            lines.push(("library", format!("{name}: {state}")));
        }
        for DeviceSummary { device, unavailable } in &self.devices {
            let state = unavailable
                .as_ref()
                .map_or("can be used".to_owned(), |reason| format!("cannot be used: {reason}"));
            lines.push(("device", format!("\"{device}\" {state}")));
        }
        let text: String =
            lines.into_iter().map(|(name, value)| format!("{name:<12} {value}\n")).collect();
        paragraphs(&text, width)
    }
}

#[cfg(feature = "cuda")]
pub(super) fn gpus() -> Result<Vec<GpuEntry>, String> {
    let found = maverl_kernels::cuda::find_gpus().map_err(|error| error.to_string())?;
    let gpus = found.into_iter().map(|info| GpuEntry {
        device: DeviceChoice::Cuda(info.number).to_string(),
        name: info.name,
        memory_bytes: info.memory,
        compute_capability: format!("{}.{}", info.capability.0, info.capability.1),
    });
    Ok(gpus.collect())
}

#[cfg(not(feature = "cuda"))]
pub(super) fn gpus() -> Result<Vec<GpuEntry>, String> {
    Err("this program lacks the feature `cuda`".to_owned())
}

#[cfg(feature = "cuda")]
pub(super) fn libraries() -> Vec<LibraryEntry> {
    let libraries = maverl_kernels::cuda::find_libraries().into_iter().map(|info| LibraryEntry {
        name: info.name,
        missing: info.found.as_ref().err().cloned(),
        found: info.found.ok(),
    });
    libraries.collect()
}

#[cfg(not(feature = "cuda"))]
pub(super) fn libraries() -> Vec<LibraryEntry> {
    Vec::new()
}

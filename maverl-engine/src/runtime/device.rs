//! Devices of worker groups: the choice, its requirements, and opening one.

use std::fmt;
use std::str::FromStr;

use maverl_kernels::matmul::Precision;

#[cfg(feature = "cuda")]
use super::parity::DeviceKernels;
#[cfg(feature = "cuda")]
use crate::model::ops::device::{self, Device};
use crate::model::{HfConfig, ModelFiles};
use crate::runtime::{AdapterSpec, RuntimeError, WorkerSpec};
#[cfg(feature = "cuda")]
use maverl_kernels::cuda::{Driver, Emulated, Gpu, Kernels, MODEL};
#[cfg(feature = "cuda")]
use maverl_kernels::emulate;

/// Device on which worker groups generate and are trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DeviceChoice {
    /// The CPU.
    #[default]
    Cpu,
    /// The first GPU if it can run the worker groups, else the CPU.
    Auto,
    /// The GPU of a number.
    Cuda(usize),
    /// The kernels of GPUs as C++ on the CPU: slow, for tests.
    Emulated,
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Auto => f.write_str("auto"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
            Self::Emulated => f.write_str("emulated"),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let number = |number: &str| Some(Self::Cuda(number.parse().ok()?));
        let found = match name {
            "cpu" => Some(Self::Cpu),
            "auto" => Some(Self::Auto),
            "cuda" => Some(Self::Cuda(0)),
            "emulated" => Some(Self::Emulated),
            _ => name.strip_prefix("cuda:").and_then(number),
        };
        found.ok_or_else(|| {
            format!("\"{name}\" is no device; write \"cpu\", \"auto\", \"cuda\", \"cuda:1\" or \"emulated\"")
        })
    }
}

impl DeviceChoice {
    /// Returns the reason why this program cannot use the device on this machine, with a remedy; `None` if it can. The
    /// automatic choice can always be used.
    pub fn unavailable(self) -> Option<String> {
        self.unavailable_parts().map(|[reason, remedy]| match remedy.is_empty() {
            true => reason,
            false => format!("{reason}; {remedy}"),
        })
    }

    /// Returns the reason why this program cannot use the device on this machine, and what to install or to build, which is
    /// empty if that is not known; `None` if it can be used.
    #[doc(hidden)]
    pub fn unavailable_parts(self) -> Option<[String; 2]> {
        match self {
            Self::Cpu | Self::Auto => None,
            Self::Cuda(number) => gpu_unavailable(number),
            Self::Emulated => emulation_unavailable(),
        }
    }

    /// Returns the bytes of memory that a GPU has to give: all but 1 GiB for its context and code. `None` if there is
    /// none.
    pub fn memory(self) -> Option<u64> {
        gpu_memory(match self {
            Self::Cuda(number) => number,
            Self::Auto => 0,
            Self::Cpu | Self::Emulated => return None,
        })
    }

    /// Returns what a worker group has that the device does not support, with remedies. `base` is the configuration of
    /// its model, if it is known.
    pub fn unsupported(self, worker: &WorkerSpec, base: Option<&HfConfig>) -> Vec<String> {
        if matches!(self, Self::Cpu | Self::Auto) {
            return Vec::new();
        }
        let mut reasons = Vec::new();
        if worker.precision == Precision::F32 {
            reasons.push("products are in bf16: write `dtype = \"bf16\"`".to_owned());
        }
        for policy in worker.policies.iter().filter(|policy| policy.trained) {
            let dropout = match &policy.adapter {
                Some(AdapterSpec::New(lora)) => lora.dropout,
                Some(AdapterSpec::Load { dropout, .. }) => *dropout,
                None => 0.0,
            };
            if dropout > 0.0 {
                let name = &policy.name;
                reasons.push(format!(
                    "policy `{name}` has an adapter with dropout {dropout}: write `dropout = 0`"
                ));
            }
        }
        reasons.extend(base.map(shape).unwrap_or_default());
        reasons
    }
}

/// A device that is open.
pub(crate) enum OpenDevice {
    Cpu,
    #[cfg(feature = "cuda")]
    Emulated(Device<Emulated>),
    #[cfg(feature = "cuda")]
    Cuda(Device<Driver>),
}

impl OpenDevice {
    /// Returns the device that a choice led to.
    pub(crate) fn resolved(&self, choice: DeviceChoice) -> DeviceChoice {
        match (self, choice) {
            (Self::Cpu, _) => DeviceChoice::Cpu,
            #[cfg(feature = "cuda")]
            (_, DeviceChoice::Auto) => DeviceChoice::Cuda(0),
            #[cfg(feature = "cuda")]
            (_, choice) => choice,
        }
    }

    /// Opens a device for worker groups. Returns its name too, with the reason for an automatic choice.
    pub(crate) fn open(
        choice: DeviceChoice,
        workers: &[WorkerSpec],
    ) -> Result<(Self, String), RuntimeError> {
        match choice {
            DeviceChoice::Cpu => Ok((Self::Cpu, choice.to_string())),
            DeviceChoice::Auto => match Self::first(workers) {
                Ok((device, name)) => Ok((device, format!("{name}, the first GPU"))),
                Err(RuntimeError::Device { reason, .. }) => {
                    Ok((Self::Cpu, format!("cpu, because no GPU can be used: {reason}")))
                }
                Err(error) => Err(error),
            },
            DeviceChoice::Cuda(_) | DeviceChoice::Emulated => {
                check(choice, workers, |_| None)?;
                Self::accelerator(choice)
            }
        }
    }

    /// Opens the first GPU, if it supports the worker groups.
    fn first(workers: &[WorkerSpec]) -> Result<(Self, String), RuntimeError> {
        let choice = DeviceChoice::Cuda(0);
        // A model that cannot be read is reported when it is loaded.
        let config = |worker: &WorkerSpec| {
            worker.source.fetch().ok()?;
            HfConfig::load(&ModelFiles::new(&worker.source)).ok()
        };
        check(choice, workers, config)?;
        Self::accelerator(choice)
    }

    #[cfg(feature = "cuda")]
    fn accelerator(choice: DeviceChoice) -> Result<(Self, String), RuntimeError> {
        let (kernels, name) = Self::kernels(choice)?;
        let device = match kernels {
            DeviceKernels::Cuda(gpu) => Self::Cuda(Device::new(gpu)),
            DeviceKernels::Emulated(emulated) => Self::Emulated(Device::new(emulated)),
        };
        Ok((device, name))
    }

    /// Opens the kernels of a device that is not the CPU.
    #[cfg(feature = "cuda")]
    pub(super) fn kernels(choice: DeviceChoice) -> Result<(DeviceKernels, String), RuntimeError> {
        let number = match choice {
            DeviceChoice::Cpu | DeviceChoice::Auto => {
                return Err(refused(choice, "it has no kernels".to_owned()));
            }
            DeviceChoice::Emulated => {
                let emulated = Emulated::shared(&MODEL).map_err(|error| refused(choice, error))?;
                return Ok((DeviceKernels::Emulated(Kernels::new(emulated)), choice.to_string()));
            }
            DeviceChoice::Cuda(number) => number,
        };
        let failed = |error: maverl_kernels::cuda::CudaError| refused(choice, error.to_string());
        let gpu = Gpu::with_modules(number, &MODEL).map_err(failed)?;
        let name = format!("{choice} ({})", gpu.name().map_err(failed)?);
        Ok((DeviceKernels::Cuda(gpu), name))
    }

    #[cfg(not(feature = "cuda"))]
    fn accelerator(choice: DeviceChoice) -> Result<(Self, String), RuntimeError> {
        Err(refused(choice, without_feature().join("; ")))
    }
}

/// Returns an error if a device is unavailable, or does not support the worker groups.
fn check(
    choice: DeviceChoice,
    workers: &[WorkerSpec],
    config: impl Fn(&WorkerSpec) -> Option<HfConfig>,
) -> Result<(), RuntimeError> {
    let mut reasons: Vec<String> = choice.unavailable().into_iter().collect();
    if reasons.is_empty() {
        for worker in workers {
            let found = choice.unsupported(worker, config(worker).as_ref());
            let named = |reason: String| format!("worker group `{}`: {reason}", worker.name);
            reasons.extend(found.into_iter().map(named));
        }
    }
    if reasons.is_empty() { Ok(()) } else { Err(refused(choice, reasons.join("; "))) }
}

fn refused(choice: DeviceChoice, reason: String) -> RuntimeError {
    RuntimeError::Device { device: choice.to_string(), reason }
}

/// Returns the reason and the remedy of a program without the code of devices.
#[cfg(not(feature = "cuda"))]
fn without_feature() -> [String; 2] {
    let whole = lacks_feature!("cuda");
    let (reason, remedy) = whole.split_once(": ").unwrap_or((whole, ""));
    [reason.to_owned(), remedy.to_owned()]
}

#[cfg(feature = "cuda")]
fn shape(config: &HfConfig) -> Vec<String> {
    device::unsupported(config)
}

#[cfg(not(feature = "cuda"))]
fn shape(_: &HfConfig) -> Vec<String> {
    Vec::new()
}

#[cfg(feature = "cuda")]
fn gpu_unavailable(number: usize) -> Option<[String; 2]> {
    let error = Gpu::code(number).err()?;
    let (whole, remedy) = (error.to_string(), error.remedy().unwrap_or_default());
    let reason = whole.strip_suffix(remedy).unwrap_or(&whole).trim_end_matches("; ");
    Some([reason.to_owned(), remedy.to_owned()])
}

#[cfg(not(feature = "cuda"))]
fn gpu_unavailable(_: usize) -> Option<[String; 2]> {
    Some(without_feature())
}

#[cfg(feature = "cuda")]
fn gpu_memory(number: usize) -> Option<u64> {
    let gpus = maverl_kernels::cuda::gpus().ok()?;
    Some(gpus.get(number)?.memory.saturating_sub(1 << 30))
}

#[cfg(not(feature = "cuda"))]
fn gpu_memory(_: usize) -> Option<u64> {
    None
}

#[cfg(feature = "cuda")]
fn emulation_unavailable() -> Option<[String; 2]> {
    emulate::compiler().err().map(|error| [error.to_string(), String::new()])
}

#[cfg(not(feature = "cuda"))]
fn emulation_unavailable() -> Option<[String; 2]> {
    Some(without_feature())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::model::ModelSource;
    use crate::runtime::LoraSpec;

    #[test]
    fn a_device_is_read_as_it_is_written() {
        for name in ["cpu", "auto", "cuda:0", "cuda:7", "emulated"] {
            assert_eq!(name.parse::<DeviceChoice>().unwrap().to_string(), name);
        }
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        for name in ["gpu", "cuda:", "cuda:x", "CPU", ""] {
            let error = name.parse::<DeviceChoice>().unwrap_err();
            assert!(error.contains("\"cuda:1\""), "{error}");
        }
    }

    #[test]
    fn a_device_that_cannot_be_used_is_answered_with_what_is_missing_and_what_to_do_about_it() {
        assert_eq!(DeviceChoice::Cpu.unavailable_parts(), None);
        let Some([reason, remedy]) = DeviceChoice::Cuda(99).unavailable_parts() else {
            panic!("there are no 100 GPUs")
        };
        assert!(!reason.is_empty() && !reason.ends_with(';'), "{reason}");
        if cfg!(not(feature = "cuda")) {
            assert_eq!(reason, "this program lacks the feature `cuda`");
            assert!(remedy.starts_with("build it with `--features cuda`"), "{remedy}");
        }
        let whole = DeviceChoice::Cuda(99).unavailable().unwrap();
        assert!(whole.starts_with(&reason) && whole.ends_with(&remedy), "{whole}");
    }

    #[test]
    fn everything_that_a_device_does_not_support_is_named() {
        let mut worker = WorkerSpec::new("small", ModelSource::Builtin("tiny".to_owned()));
        let lora = LoraSpec { dropout: 0.1, ..LoraSpec::default() };
        worker.policies[0].adapter = Some(AdapterSpec::New(lora));
        let found = DeviceChoice::Emulated.unsupported(&worker, None).join("; ");
        assert!(found.contains("`dtype = \"bf16\"`") && found.contains("`dropout = 0`"), "{found}");
        assert!(DeviceChoice::Cpu.unsupported(&worker, None).is_empty());
        let Err(error) = OpenDevice::open(DeviceChoice::Emulated, &[worker]) else { panic!() };
        assert!(matches!(error, RuntimeError::Device { .. }), "{error}");
    }
}

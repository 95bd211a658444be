//! Devices of worker groups: the choice, its requirements, and opening one.

mod choice;

pub use choice::DeviceChoice;

use crate::files::{HfConfig, ModelFiles};
#[cfg(feature = "candle")]
use crate::net::ops::candle::Candle;
#[cfg(feature = "cuda")]
use crate::net::ops::device::{self, Device};
use crate::runtime::{AdapterSpec, Dtype, Runtime, RuntimeError, WorkerSpec};
#[cfg(feature = "cuda")]
use maverl_kernels::cuda::{Driver, Emulated, Gpu, Kernels, MODEL};
#[cfg(feature = "cuda")]
use maverl_kernels::emulate;

impl DeviceChoice {
    /// Returns true if products on the device are in bf16 alone: those of a GPU and of its emulation.
    #[doc(hidden)]
    pub fn is_accelerator(self) -> bool {
        match self {
            Self::Cpu | Self::CandleCpu => false,
            Self::Auto => Self::Cuda(0).unavailable().is_none(),
            Self::Cuda(_) | Self::Emulated => true,
        }
    }

    /// Returns the reason why this program cannot use the device on this machine, with a remedy; `None` if it can. The
    /// automatic choice can always be used.
    pub fn unavailable(self) -> Option<String> {
        self.unavailable_parts().map(|[reason, remedy]| {
            if remedy.is_empty() { reason } else { format!("{reason}; {remedy}") }
        })
    }

    /// Returns the reason why this program cannot use the device on this machine, and what to install or to build, which is
    /// empty if that is not known; `None` if it can be used.
    #[doc(hidden)]
    pub fn unavailable_parts(self) -> Option<[String; 2]> {
        match self {
            Self::Cpu | Self::Auto => None,
            Self::Cuda(number) => gpu_unavailable(number),
            Self::CandleCpu => candle_unavailable(),
            Self::Emulated => emulation_unavailable(),
        }
    }

    /// Returns the bytes of memory that a GPU has to give: all but 1 GiB for its context and code. `None` if there is
    /// none.
    pub fn memory(self) -> Option<u64> {
        gpu_memory(match self {
            Self::Cuda(number) => number,
            Self::Auto => 0,
            Self::Cpu | Self::CandleCpu | Self::Emulated => return None,
        })
    }

    /// Returns what a worker group has that the device does not support, with remedies. `base` is the configuration of
    /// its model, if it is known.
    pub fn unsupported_features(self, worker: &WorkerSpec, base: Option<&HfConfig>) -> Vec<String> {
        if worker.dtype == Dtype::File {
            let reason = "blocks of a file are multiplied by candle: write `device = \"candle:cpu\"`, or `dtype = \"bf16\"`";
            return if self == Self::CandleCpu { Vec::new() } else { vec![reason.to_owned()] };
        }
        match self {
            Self::Cpu | Self::Auto => return Vec::new(),
            Self::CandleCpu if worker.dtype == Dtype::F32 => return Vec::new(),
            Self::CandleCpu => {
                return vec!["products are in f32: write `dtype = \"f32\"`".to_owned()];
            }
            Self::Cuda(_) | Self::Emulated => {}
        }
        let mut reasons = Vec::new();
        match worker.dtype {
            Dtype::F32 => reasons.push("products are in bf16: write `dtype = \"bf16\"`".to_owned()),
            Dtype::Bf16 | Dtype::File => {}
            Dtype::F16 => {
                let reason =
                    "products in f16 are computed on a CPU alone: write `dtype = \"bf16\"`";
                reasons.push(reason.to_owned());
            }
        }
        for policy in worker.policies.iter().filter(|policy| policy.trained) {
            let dropout = match &policy.adapter {
                Some(AdapterSpec::New(lora)) => lora.dropout,
                Some(AdapterSpec::Load { dropout, .. }) => *dropout,
                None => 0.0,
            };
            let name = &policy.name;
            if let Some(kind) = policy.optim.kind.on_cpu() {
                reasons.push(format!(
                    "policy `{name}` has `optim.kind = {kind:?}`, which updates on a CPU: write `kind = \"adamw\"`"
                ));
            }
            if dropout > 0.0 {
                reasons.push(format!(
                    "policy `{name}` has an adapter with dropout {dropout}: write `dropout = 0`"
                ));
            }
        }
        reasons.extend(base.map(shape).unwrap_or_default());
        reasons
    }
}

/// Device of a worker group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerDevice {
    /// Name of the worker group.
    pub worker: String,
    /// Name of the device, with the reason for an automatic choice.
    pub name: String,
    /// The device, never the automatic choice.
    pub device: DeviceChoice,
}

/// Kernels of an open device.
#[cfg(feature = "cuda")]
pub enum DeviceKernels {
    /// Those of a GPU.
    Cuda(Kernels<Driver>),
    /// Those of the emulated device.
    Emulated(Kernels<Emulated>),
}

#[cfg(feature = "cuda")]
impl DeviceKernels {
    /// Opens a device. Returns its name too.
    ///
    /// # Errors
    ///
    /// If the device cannot be used, or is the CPU.
    pub fn open(choice: DeviceChoice) -> Result<(Self, String), RuntimeError> {
        OpenDevice::kernels(choice).map_err(|reason| refused_device(KEY, choice, reason))
    }
}

/// A device that is open. Clones share it.
#[derive(Clone)]
pub(crate) enum OpenDevice {
    Cpu,
    #[cfg(feature = "candle")]
    Candle(Candle),
    #[cfg(feature = "cuda")]
    Emulated(Device<Emulated>),
    #[cfg(feature = "cuda")]
    Cuda(Device<Driver>),
}

impl OpenDevice {
    /// Opens a device. Returns its name too, or the reason why it cannot be opened.
    pub(crate) fn open(choice: DeviceChoice) -> Result<(Self, String), String> {
        match choice {
            DeviceChoice::Cpu => Ok((Self::Cpu, choice.to_string())),
            #[cfg(feature = "candle")]
            DeviceChoice::CandleCpu => Ok((Self::Candle(Candle::cpu()), choice.to_string())),
            _ => Self::accelerator(choice),
        }
    }

    #[cfg(feature = "cuda")]
    fn accelerator(choice: DeviceChoice) -> Result<(Self, String), String> {
        let (kernels, name) = Self::kernels(choice)?;
        let device = match kernels {
            DeviceKernels::Cuda(gpu) => Self::Cuda(Device::new(gpu)),
            DeviceKernels::Emulated(emulated) => Self::Emulated(Device::new(emulated)),
        };
        Ok((device, name))
    }

    /// Opens the kernels of a device that is not the CPU.
    #[cfg(feature = "cuda")]
    pub(super) fn kernels(choice: DeviceChoice) -> Result<(DeviceKernels, String), String> {
        let number = match choice {
            DeviceChoice::Cpu | DeviceChoice::Auto | DeviceChoice::CandleCpu => {
                return Err("it has no kernels".to_owned());
            }
            DeviceChoice::Emulated => {
                let emulated = Emulated::shared_machine(&MODEL)?;
                return Ok((DeviceKernels::Emulated(Kernels::new(emulated)), choice.to_string()));
            }
            DeviceChoice::Cuda(number) => number,
        };
        let gpu = Gpu::with_modules(number, &MODEL).map_err(|error| error.to_string())?;
        let name = gpu.name().map_err(|error| error.to_string())?;
        let by =
            gpu.library_version().map_or_else(|_| String::new(), |of| format!(", cuBLASLt {of}"));
        Ok((DeviceKernels::Cuda(gpu), format!("{choice} ({name}{by})")))
    }

    #[cfg(not(feature = "cuda"))]
    fn accelerator(_: DeviceChoice) -> Result<(Self, String), String> {
        Err(without_feature().join("; "))
    }
}

/// Open devices of a runtime. Worker groups on one device share it.
pub(super) struct Devices {
    /// Device of the options.
    shared: OpenedDevice,
    /// Device of each worker group.
    groups: Vec<(OpenDevice, WorkerDevice)>,
}

impl Devices {
    /// Opens the device of the options, and the own devices of worker groups, each once.
    pub(super) fn open(choice: DeviceChoice, workers: &[WorkerSpec]) -> Result<Self, RuntimeError> {
        let mut opened = Vec::new();
        let without = workers.iter().filter(|worker| worker.device.is_none()).collect();
        let shared =
            AskedDevice { key: KEY.to_owned(), choice, workers: without }.open(&mut opened)?;
        let mut groups = Vec::new();
        for worker in workers {
            let key = format!("worker_groups.{}.device", worker.name);
            let OpenedDevice { device, choice, name } = match worker.device {
                None => shared.clone(),
                Some(choice) => {
                    AskedDevice { key, choice, workers: vec![worker] }.open(&mut opened)?
                }
            };
            let of = WorkerDevice { worker: worker.name.clone(), name, device: choice };
            groups.push((device, of));
        }
        Ok(Self { shared, groups })
    }

    /// Returns the device of every worker group, in their order.
    pub(super) fn of_groups(&self) -> impl Iterator<Item = &OpenDevice> {
        self.groups.iter().map(|(device, _)| device)
    }
}

impl Runtime {
    /// Returns the name of the device of worker groups without one of their own, with the reason for an automatic choice.
    pub fn device(&self) -> &str {
        &self.devices.shared.name
    }

    /// Returns the device of worker groups without one of their own, never the automatic choice.
    #[doc(hidden)]
    pub fn resolved_device(&self) -> DeviceChoice {
        self.devices.shared.choice
    }

    /// Returns the device of every worker group, in the order in which they were given.
    pub fn worker_devices(&self) -> impl Iterator<Item = &WorkerDevice> {
        self.devices.groups.iter().map(|(_, of)| of)
    }
}

/// Key of the device of worker groups without one of their own.
pub(super) const KEY: &str = "runtime.device";

/// A device that is open, never the automatic choice, with its name.
#[derive(Clone)]
struct OpenedDevice {
    device: OpenDevice,
    choice: DeviceChoice,
    name: String,
}

/// A device that a key asks for, and the worker groups that run on it.
struct AskedDevice<'w> {
    key: String,
    choice: DeviceChoice,
    workers: Vec<&'w WorkerSpec>,
}

/// Returns the configuration of a worker group's model, if it can be read.
fn config_of(worker: &WorkerSpec) -> Option<HfConfig> {
    worker.source.fetch().ok()?;
    HfConfig::load(&ModelFiles::new(&worker.source)).ok()
}

impl AskedDevice<'_> {
    /// Opens the device, or takes it from those that are open. The automatic choice is the first GPU if it can be opened and
    /// supports the worker groups, else the CPU.
    fn open(&self, opened: &mut Vec<OpenedDevice>) -> Result<OpenedDevice, RuntimeError> {
        if self.choice != DeviceChoice::Auto {
            return self.on(self.choice, |_| None, opened);
        }
        // A model that cannot be read is reported when it is loaded.
        match self.on(DeviceChoice::Cuda(0), config_of, opened) {
            Ok(found) => {
                Ok(OpenedDevice { name: format!("{}, the first GPU", found.name), ..found })
            }
            Err(RuntimeError::Device { reason, .. }) => Ok(OpenedDevice {
                device: OpenDevice::Cpu,
                choice: DeviceChoice::Cpu,
                name: format!("cpu, because no GPU can be used: {reason}"),
            }),
            Err(error) => Err(error),
        }
    }

    /// Opens a device that is available and supports the worker groups, or takes it from those that are open.
    fn on(
        &self,
        choice: DeviceChoice,
        config: impl Fn(&WorkerSpec) -> Option<HfConfig>,
        opened: &mut Vec<OpenedDevice>,
    ) -> Result<OpenedDevice, RuntimeError> {
        let mut reasons: Vec<String> = choice.unavailable().into_iter().collect();
        if reasons.is_empty() {
            for worker in &self.workers {
                let found = choice.unsupported_features(worker, config(worker).as_ref());
                let found = found.into_iter();
                reasons.extend(found.map(|what| format!("worker group `{}`: {what}", worker.name)));
            }
        }
        if !reasons.is_empty() {
            return Err(refused_device(&self.key, choice, reasons.join("; ")));
        }
        if let Some(found) = opened.iter().find(|found| found.choice == choice) {
            return Ok(found.clone());
        }
        let (device, name) =
            OpenDevice::open(choice).map_err(|reason| refused_device(&self.key, choice, reason))?;
        let found = OpenedDevice { device, choice, name };
        opened.push(found.clone());
        Ok(found)
    }
}

/// Returns the error of a device that cannot be opened, or does not support what runs on it.
pub(super) fn refused_device(key: &str, choice: DeviceChoice, reason: String) -> RuntimeError {
    RuntimeError::Device { key: key.to_owned(), device: choice.to_string(), reason }
}

/// Returns the reason and the remedy of a program without the code of devices.
#[cfg(not(feature = "cuda"))]
fn without_feature() -> [String; 2] {
    missing_feature(maverl_settings::lacks_feature!("cuda"))
}

/// Splits the message of a missing feature into reason and remedy.
#[cfg(not(all(feature = "cuda", feature = "candle")))]
fn missing_feature(whole: &str) -> [String; 2] {
    let (reason, remedy) = whole.split_once(": ").unwrap_or((whole, ""));
    [reason.to_owned(), remedy.to_owned()]
}

#[cfg(feature = "cuda")]
fn shape(config: &HfConfig) -> Vec<String> {
    device::unsupported_reasons(config)
}

#[cfg(not(feature = "cuda"))]
fn shape(_: &HfConfig) -> Vec<String> {
    Vec::new()
}

#[cfg(feature = "cuda")]
fn gpu_unavailable(number: usize) -> Option<[String; 2]> {
    let error = Gpu::code_origin(number).err()?;
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
    let gpus = maverl_kernels::cuda::find_gpus().ok()?;
    Some(gpus.get(number)?.memory.saturating_sub(1 << 30))
}

#[cfg(not(feature = "cuda"))]
fn gpu_memory(_: usize) -> Option<u64> {
    None
}

#[cfg(feature = "candle")]
fn candle_unavailable() -> Option<[String; 2]> {
    None
}

#[cfg(not(feature = "candle"))]
fn candle_unavailable() -> Option<[String; 2]> {
    Some(missing_feature(maverl_settings::lacks_feature!("candle")))
}

#[cfg(feature = "cuda")]
fn emulation_unavailable() -> Option<[String; 2]> {
    emulate::check_compiler().err().map(|error| [error.to_string(), String::new()])
}

#[cfg(not(feature = "cuda"))]
fn emulation_unavailable() -> Option<[String; 2]> {
    Some(without_feature())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::files::ModelSource;
    use crate::runtime::LoraSpec;

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
        let found = DeviceChoice::Emulated.unsupported_features(&worker, None).join("; ");
        assert!(found.contains("`dtype = \"bf16\"`") && found.contains("`dropout = 0`"), "{found}");
        assert!(DeviceChoice::Cpu.unsupported_features(&worker, None).is_empty());
        let Err(error) = Devices::open(DeviceChoice::Emulated, &[worker]) else { panic!() };
        let RuntimeError::Device { key, .. } = &error else { panic!("{error}") };
        assert_eq!(key, "runtime.device");
    }

    #[test]
    fn a_worker_group_has_its_own_device_or_else_that_of_the_options() {
        let worker = |name: &str, device| {
            let mut worker = WorkerSpec::new(name, ModelSource::Builtin("tiny".to_owned()));
            worker.device = device;
            worker
        };
        let workers = [worker("one", Some(DeviceChoice::Cpu)), worker("other", None)];
        let devices = Devices::open(DeviceChoice::Cpu, &workers).unwrap();
        let found: Vec<(&str, DeviceChoice)> =
            devices.groups.iter().map(|(_, of)| (of.worker.as_str(), of.device)).collect();
        assert_eq!(found, [("one", DeviceChoice::Cpu), ("other", DeviceChoice::Cpu)]);

        // A device that cannot be used is named with the key that asks for it.
        let workers = [worker("one", Some(DeviceChoice::Cuda(99))), worker("other", None)];
        let Err(error) = Devices::open(DeviceChoice::Cpu, &workers) else { panic!() };
        let told = "`worker_groups.one.device` is \"cuda:99\"";
        assert!(error.to_string().starts_with(told), "{error}");
    }

    #[test]
    fn the_automatic_choice_of_a_worker_group_depends_on_that_group_alone() {
        let worker = |name: &str, dropout| {
            let mut worker = WorkerSpec::new(name, ModelSource::Builtin("tiny".to_owned()));
            worker.device = Some(DeviceChoice::Auto);
            worker.dtype = Dtype::Bf16;
            let lora = LoraSpec { dropout, ..LoraSpec::default() };
            worker.policies[0].adapter = Some(AdapterSpec::New(lora));
            worker
        };
        let workers = [worker("fits", 0.0), worker("does not", 0.1)];
        let devices = Devices::open(DeviceChoice::Cpu, &workers).unwrap();
        let gpu = DeviceChoice::Cuda(0).unavailable().is_none();
        let expected = if gpu { DeviceChoice::Cuda(0) } else { DeviceChoice::Cpu };
        let [fits, other] = [0, 1].map(|group: usize| &devices.groups[group].1);
        assert_eq!(fits.device, expected);
        assert_eq!(other.device, DeviceChoice::Cpu);
        assert!(other.name.starts_with("cpu, because no GPU can be used: "), "{other:?}");
    }
}

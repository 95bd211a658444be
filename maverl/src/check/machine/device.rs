//! Devices of a plan: what they lack, and their memory.

use super::memory::{Sequences, kv_advice, report_cache};
use crate::config::source::{Problems, key, path};
use crate::config::{Shard, Transport};
use crate::files::{HfConfig, ModelFiles};
use crate::plan::{DeviceMemory, Plan, bytes};
use crate::runtime::{DeviceChoice, RuntimeOptions, WorkerSpec};

/// Reports devices that cannot be used here, or do not support the worker groups on them.
pub(super) fn check_devices(plan: &Plan, problems: &mut Problems<'_>) {
    let specs = plan.worker_specs();
    let shared: Vec<&WorkerSpec> = specs.iter().filter(|spec| spec.device.is_none()).collect();
    usable(&path(["runtime", "device"]), plan.config.runtime.device, &shared, problems);
    for spec in &specs {
        if let Some(device) = spec.device {
            usable(&path(["worker_groups", &spec.name, "device"]), device, &[spec], problems);
        }
    }
    let mut devices = specs.iter().map(|spec| spec.device.unwrap_or(plan.config.runtime.device));
    let on_gpu = devices.any(|it| matches!(it, DeviceChoice::Cuda(_) | DeviceChoice::Auto));
    if plan.config.dist.transport == Transport::Nccl && !on_gpu {
        let message =
            "`dist.transport` is \"nccl\", which connects GPUs, and no worker group is on one";
        let help = "write `dist.transport = \"tcp\"`, or `runtime.device = \"cuda\"`";
        problems.value(&path(["dist", "transport"]), message.to_owned(), help.to_owned());
    }
    if plan.config.dist.transport == Transport::Mpi && !cfg!(feature = "mpi") {
        let message = concat!("`dist.transport` is \"mpi\"; ", crate::lacks_feature!("mpi"));
        let help =
            "or write `dist.transport = \"tcp\"`: `mpirun` and `srun` start ranks over TCP too";
        problems.value(&path(["dist", "transport"]), message.to_owned(), help.to_owned());
    }
}

/// Returns a warning about each device whose results are not the same in every company.
pub(super) fn exactness_warnings(plan: &Plan) -> Vec<String> {
    let mut devices: Vec<DeviceChoice> = Vec::new();
    for worker in &plan.workers {
        let device = plan.device_of(worker);
        if !devices.contains(&device) {
            devices.push(device);
        }
    }
    devices.into_iter().filter_map(DeviceChoice::note).collect()
}

/// Reports the device of a key, if it cannot be used here or does not support the worker groups.
fn usable(at: &[String], device: DeviceChoice, specs: &[&WorkerSpec], problems: &mut Problems<'_>) {
    let name = key(at);
    if let Some([reason, remedy]) = device.unavailable_parts() {
        let message = format!("`{name}` is \"{device}\", which cannot be used here: {reason}");
        let cpu = format!("write `{name} = \"cpu\"`");
        let help = if remedy.is_empty() { cpu } else { format!("{remedy}; or {cpu}") };
        problems.value(at, message, help);
        return;
    }
    let lacking = lacking(device, specs);
    if !lacking.is_empty() {
        let lacking = lacking.join("; ");
        let message =
            format!("`{name}` is \"{device}\", which does not support the plan: {lacking}");
        problems.value(at, message, format!("or write `{name} = \"cpu\"`"));
    }
}

/// Returns what worker groups have that a device does not support; nothing for the automatic choice.
fn lacking(device: DeviceChoice, specs: &[&WorkerSpec]) -> Vec<String> {
    if matches!(device, DeviceChoice::Cpu | DeviceChoice::Auto) {
        return Vec::new();
    }
    let mut lacking = Vec::new();
    for spec in specs {
        let base = HfConfig::load(&ModelFiles::new(&spec.source)).ok();
        let reasons = device.unsupported_features(spec, base.as_ref()).into_iter();
        lacking.extend(reasons.map(|reason| format!("worker group `{}`: {reason}", spec.name)));
    }
    lacking
}

/// Predicts the memory that worker groups take of their devices. Worker groups without `config.json` or a tokenizer are left
/// out; others report those.
pub(super) fn predict_memory(plan: &Plan) -> Vec<DeviceMemory> {
    let (specs, options) = (plan.training_specs(), plan.runtime_options());
    let shared: Vec<&WorkerSpec> = specs.iter().filter(|spec| spec.device.is_none()).collect();
    let shared = chosen(plan.config.runtime.device, &shared);
    let mut found = Vec::new();
    for spec in &specs {
        let device = spec.device.map_or(shared, |device| chosen(device, &[spec]));
        let of_kernels = !matches!(device, DeviceChoice::Cpu | DeviceChoice::CandleCpu);
        if of_kernels && device.unavailable().is_none() {
            found.extend(predict_worker(spec, device, &options));
        }
    }
    found
}

/// Reports worker groups that take more memory than their device has. Returns warnings about those near its limit.
pub(super) fn check_device_memory(
    (plan, taken): (&Plan, &[DeviceMemory]),
    problems: &mut Problems<'_>,
) -> Vec<String> {
    let mut devices: Vec<DeviceChoice> = Vec::new();
    for of in taken {
        if !devices.contains(&of.device) {
            devices.push(of.device);
        }
    }
    let mut warnings = Vec::new();
    for device in devices {
        if let Some(memory) = device.memory() {
            warnings.extend(compare((plan, taken), device, memory, problems));
        }
    }
    warnings
}

/// Returns the device that a choice leads to here for worker groups, never the automatic choice.
fn chosen(device: DeviceChoice, specs: &[&WorkerSpec]) -> DeviceChoice {
    let first = DeviceChoice::Cuda(0);
    match device {
        DeviceChoice::Auto if first.unavailable().is_some() => DeviceChoice::Cpu,
        DeviceChoice::Auto if !lacking(first, specs).is_empty() => DeviceChoice::Cpu,
        DeviceChoice::Auto => first,
        device => device,
    }
}

#[cfg(feature = "cuda")]
fn predict_worker(
    worker: &WorkerSpec,
    device: DeviceChoice,
    options: &RuntimeOptions,
) -> Option<DeviceMemory> {
    use crate::runtime::{Workload, predict};
    use crate::text::Tokenizer;

    let files = ModelFiles::new(&worker.source);
    let config = HfConfig::load(&files).ok()?;
    let tokenizer = std::sync::Arc::new(Tokenizer::load(&files).ok()?);
    let work = Workload::largest(worker, &config, options);
    let found = predict(worker, &config, &tokenizer, options, &work).ok()?;
    // Snapshots have keys and values of their own.
    let caches = if worker.snapshots > 0 { 2 } else { 1 };
    let kv = caches * ((options.kv_mib.get() as u64) << 20);
    Some(DeviceMemory {
        worker: worker.name.clone(),
        device,
        weight_bytes: found.weights,
        moment_bytes: found.moments,
        other_bytes: found.others,
        gradient_bytes: found.gradients,
        activation_bytes: found.activations,
        pass_bytes: found.rollout,
        // The array is replaced by one of twice the size, and both are there while it is copied.
        kv_bytes: kv + kv / 2,
        peak_bytes: found.peak,
    })
}

#[cfg(not(feature = "cuda"))]
fn predict_worker(_: &WorkerSpec, _: DeviceChoice, _: &RuntimeOptions) -> Option<DeviceMemory> {
    None
}

/// Returns a warning about a plan that fits the memory of a device if ranks divide its moments; `None` if they do not, or no
/// number of ranks is enough.
fn divided_warning(
    plan: &Plan,
    [peak, moments, memory]: [u64; 3],
    device: DeviceChoice,
) -> Option<String> {
    let left = memory.checked_sub(peak.saturating_sub(moments)).filter(|&left| left > 0)?;
    (plan.config.dist.shard != Shard::None).then(|| {
        format!(
            "the plan takes {} of the memory of {device}, which has {} to give, on one rank; with its moments divided \
             (`dist.shard`), it fits on {} ranks or more",
            bytes(peak),
            bytes(memory),
            moments.div_ceil(left)
        )
    })
}

/// Compares the worker groups on a device with its memory. Returns a warning about keys and values of the default size.
fn compare(
    (plan, taken): (&Plan, &[DeviceMemory]),
    device: DeviceChoice,
    memory: u64,
    problems: &mut Problems<'_>,
) -> Option<String> {
    let on: Vec<&DeviceMemory> = taken.iter().filter(|of| of.device == device).collect();
    let (peak, there) = (on.iter().map(|of| of.peak_bytes).sum::<u64>(), bytes(memory));
    if peak > memory {
        let moments = on.iter().map(|of| of.moment_bytes).sum();
        let divided = divided_warning(plan, [peak, moments, memory], device);
        if divided.is_some() {
            return divided;
        }
        let activations: u64 = on.iter().map(|of| of.activation_bytes).sum();
        let message = format!(
            "the plan takes {} of the memory of {device}, which has {there} to give: weights {}, moments {}, adapters, \
             references and critics {}, gradients {}, activations {}",
            bytes(peak),
            bytes(on.iter().map(|of| of.weight_bytes).sum()),
            bytes(moments),
            bytes(on.iter().map(|of| of.other_bytes).sum()),
            bytes(on.iter().map(|of| of.gradient_bytes).sum()),
            bytes(activations),
        );
        let help = if activations > peak / 2 {
            "lower `runtime.micro_batch_tokens`, or write `gradient_checkpointing = true` for the model"
        } else {
            "train adapters (`lora`) or a smaller model, or use a larger GPU"
        };
        let apart = match on.len() {
            1 => "",
            _ => ", or give a worker group another device (`worker_groups.NAME.device`)",
        };
        problems.value(&asked_at(plan, &on), message, format!("{help}{apart}"));
        return None;
    }
    let rollout: u64 = on.iter().map(|of| of.rollout()).sum();
    if rollout <= memory {
        return None;
    }
    let groups = on.len() as u64;
    let kv: u64 = on.iter().map(|of| of.kv_bytes).sum();
    let rest = memory.saturating_sub(rollout - kv);
    // Half as much again is needed while the array of keys and values grows.
    let sequences =
        Sequences::of(plan, |worker| on.iter().any(|of| of.worker == worker.name)).on_gpu();
    let lower = kv_advice(rest / groups.max(1) * 2 / 3, sequences);
    let message = format!(
        "keys and values may take up to {} of the memory of {device}, with all else {}, and it has {there}",
        bytes(kv),
        bytes(rollout)
    );
    report_cache(plan, message, lower, problems)
}

/// Returns the key that puts worker groups on their device: that of the first of them, if each has one.
fn asked_at(plan: &Plan, on: &[&DeviceMemory]) -> Vec<String> {
    let own = plan.workers.iter().filter(|worker| worker.device.is_some());
    let own: Vec<&String> = own.map(|worker| &worker.name).collect();
    match on.first().filter(|_| on.iter().all(|of| own.contains(&&of.worker))) {
        Some(of) => path(["worker_groups", &of.worker, "device"]),
        None => path(["runtime", "device"]),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::config::source::{Sources, read_layers};

    const GPU: DeviceChoice = DeviceChoice::Cuda(0);

    fn memory(gib: u64) -> DeviceMemory {
        DeviceMemory {
            worker: "small".to_owned(),
            device: GPU,
            weight_bytes: gib << 30,
            moment_bytes: (2 * gib) << 30,
            other_bytes: 0,
            gradient_bytes: gib << 30,
            activation_bytes: 1 << 30,
            pass_bytes: 1 << 30,
            kv_bytes: 6 << 30,
            peak_bytes: (4 * gib + 1) << 30,
        }
    }

    #[test]
    fn a_plan_above_the_memory_of_its_device_is_an_error_with_the_numbers() {
        let layers = read_layers(&Sources::default()).unwrap();
        let mut plan = crate::algo::testing::plan(&[("t/a", true)]);
        // What is on another device takes nothing of this one.
        let elsewhere = DeviceMemory { device: DeviceChoice::Cuda(1), ..memory(50) };
        let taken = [memory(1), elsewhere, memory(2)];
        let told = |plan: &Plan, gib: u64| {
            let mut problems = Problems::new(&layers);
            let warning = compare((plan, &taken), GPU, gib << 30, &mut problems);
            let found = problems.finish(Some(())).err().unwrap_or_default();
            let text = found.iter().map(|problem| format!("{problem:?}")).collect::<String>();
            (warning, text)
        };
        let (_, error) = told(&plan, 13);
        for part in [
            "takes 14.00 GiB",
            "memory of cuda:0, which has 13.00 GiB",
            "moments 6.00 GiB",
            "(`lora`)",
            "`worker_groups.NAME.device`",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let (warning, error) = told(&plan, 20);
        assert_eq!(error, "");
        let warning = warning.unwrap();
        assert!(
            warning.contains("up to 12.00 GiB") && warning.contains("kv_mib = 3072"),
            "{warning}"
        );
        assert_eq!(told(&plan, 23), (None, String::new()));
        // Ranks that divide the moments need less each.
        plan.config = plan.config.with(|config| config.dist.shard = Shard::Optimizer);
        let (warning, error) = told(&plan, 13);
        assert!(warning.unwrap().contains("fits on 2 ranks or more"), "{error}");
        assert!(told(&plan, 8).1.contains("takes 14.00 GiB"));
    }
}

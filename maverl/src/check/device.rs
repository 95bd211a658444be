//! The device of a plan: precision of products that are not configured, what it lacks, and its memory.

use super::diagnostic::{Problems, path};
use super::{Config, Plan};
use crate::config::{Dtype, RuntimeConfig};
use crate::model::{HfConfig, ModelFiles};
use crate::plan::{DeviceMemory, bytes};
use crate::runtime::DeviceChoice;

/// Sets products in bf16 for models without a `dtype`, if the device has no others.
pub(super) fn settle(config: &mut Config, problems: &Problems<'_>) {
    if !config.runtime.device.is_accelerator() {
        return;
    }
    for (name, model) in &mut config.models {
        if !problems.layers().has(&path(["models", name, "dtype"])) {
            model.dtype = Dtype::Bf16;
        }
    }
}

/// Reports a device that cannot be used here, or does not support the plan.
pub(super) fn check(plan: &Plan, problems: &mut Problems<'_>) {
    let device = plan.runtime.device.0;
    let at = path(["runtime", "device"]);
    if let Some([reason, remedy]) = device.unavailable_parts() {
        let message =
            format!("`runtime.device` is \"{device}\", which cannot be used here: {reason}");
        let cpu = "write `runtime.device = \"cpu\"`";
        let help = if remedy.is_empty() { cpu.to_owned() } else { format!("{remedy}; or {cpu}") };
        problems.value(&at, message, help);
        return;
    }
    if matches!(device, DeviceChoice::Cpu | DeviceChoice::Auto) {
        return;
    }
    let mut lacking = Vec::new();
    for worker in plan.worker_specs() {
        let base = HfConfig::load(&ModelFiles::new(&worker.source)).ok();
        let reasons = device.unsupported(&worker, base.as_ref());
        let named = |reason| format!("worker group `{}`: {reason}", worker.name);
        lacking.extend(reasons.into_iter().map(named));
    }
    if !lacking.is_empty() {
        let lacking = lacking.join("; ");
        let message =
            format!("`runtime.device` is \"{device}\", which does not support the plan: {lacking}");
        problems.value(&at, message, "or write `runtime.device = \"cpu\"`".to_owned());
    }
}

/// Predicts the memory of the device, and reports a plan that takes more than it has. Worker groups without
/// `config.json` or a tokenizer are left out; others report those.
pub(super) fn plan_memory(plan: &mut Plan, problems: &mut Problems<'_>) {
    let device = plan.runtime.device;
    if !device.is_accelerator() || device.0.unavailable().is_some() {
        return;
    }
    plan.device_memory = predicted(plan);
    let Some(memory) = device.0.memory() else { return };
    plan.warnings.extend(compare(plan, memory, problems));
}

#[cfg(feature = "cuda")]
fn predicted(plan: &Plan) -> Vec<DeviceMemory> {
    use crate::model::Tokenizer;
    use crate::runtime::{Workload, predict};

    let options = plan.runtime_options();
    let of = |worker: crate::runtime::WorkerSpec| {
        let files = ModelFiles::new(&worker.source);
        let config = HfConfig::load(&files).ok()?;
        let tokenizer = std::sync::Arc::new(Tokenizer::load(&files).ok()?);
        let work = Workload::largest(&worker, &config, &options);
        let found = predict(&worker, &config, &tokenizer, &options, &work).ok()?;
        let kv = (options.kv_mib.get() as u64) << 20;
        Some(DeviceMemory {
            worker: worker.name,
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
    };
    plan.worker_specs().into_iter().filter_map(of).collect()
}

#[cfg(not(feature = "cuda"))]
fn predicted(_: &Plan) -> Vec<DeviceMemory> {
    Vec::new()
}

/// Compares a plan with the memory of its device. Returns a warning about keys and values of the default size.
fn compare(plan: &Plan, memory: u64, problems: &mut Problems<'_>) -> Option<String> {
    let sum = |part: fn(&DeviceMemory) -> u64| plan.device_memory.iter().map(part).sum::<u64>();
    let (peak, there) = (sum(|of| of.peak_bytes), bytes(memory));
    if peak > memory {
        let message = format!(
            "the plan takes {} of the memory of the device, which has {there} to give: weights {}, moments {}, adapters, \
             references and critics {}, gradients {}, activations {}",
            bytes(peak),
            bytes(sum(|of| of.weight_bytes)),
            bytes(sum(|of| of.moment_bytes)),
            bytes(sum(|of| of.other_bytes)),
            bytes(sum(|of| of.gradient_bytes)),
            bytes(sum(|of| of.activation_bytes)),
        );
        let help = match sum(|of| of.activation_bytes) > peak / 2 {
            true => {
                "lower `runtime.micro_batch_tokens`, or write `gradient_checkpointing = true` for the model"
            }
            false => "train adapters (`lora`) or a smaller model, or use a larger GPU",
        };
        problems.value(&path(["runtime", "device"]), message, help.to_owned());
        return None;
    }
    let rollout = sum(DeviceMemory::rollout);
    if rollout <= memory {
        return None;
    }
    let groups = plan.device_memory.len() as u64;
    let rest = memory.saturating_sub(rollout - sum(|of| of.kv_bytes));
    let lower = format!("`runtime.kv_mib = {}` fits", (rest / groups.max(1) * 2 / 3) >> 20);
    let message = format!(
        "keys and values may take up to {} of the memory of the device, with all else {}, and it has {there}",
        bytes(sum(|of| of.kv_bytes)),
        bytes(rollout)
    );
    // A default-sized cache is seldom filled.
    if plan.runtime.kv_mib == RuntimeConfig::default().kv_mib {
        return Some(format!("{message}; {lower}"));
    }
    problems.value(&path(["runtime", "kv_mib"]), message, lower);
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::Sources;
    use super::super::sources::Layers;
    use super::*;

    fn memory(gib: u64) -> DeviceMemory {
        DeviceMemory {
            worker: "small".to_owned(),
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
        let (layers, _) = Layers::read(&Sources::default());
        let mut plan = crate::algo::testing::plan(&[("t/a", true)]);
        plan.device_memory = vec![memory(1), memory(2)];
        let told = |gib: u64| {
            let mut problems = Problems::new(&layers);
            let warning = compare(&plan, gib << 30, &mut problems);
            let found = problems.finish(Some(())).err().unwrap_or_default();
            let text = found.iter().map(|problem| format!("{problem:?}")).collect::<String>();
            (warning, text)
        };
        let (_, error) = told(13);
        for part in
            ["takes 14.00 GiB", "has 13.00 GiB to give", "moments 6.00 GiB", "adapters (`lora`)"]
        {
            assert!(error.contains(part), "{part}: {error}");
        }
        let (warning, error) = told(20);
        assert_eq!(error, "");
        let warning = warning.unwrap();
        assert!(
            warning.contains("up to 12.00 GiB") && warning.contains("kv_mib = 3072"),
            "{warning}"
        );
        assert_eq!(told(23), (None, String::new()));
    }
}

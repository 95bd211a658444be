//! The device of a plan: precision of products that are not configured, and what it lacks.

use super::diagnostic::{Problems, path};
use super::{Config, Plan};
use crate::config::Dtype;
use crate::model::{HfConfig, ModelFiles};
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
    if let Some(reason) = device.unavailable() {
        let message =
            format!("`runtime.device` is \"{device}\", which cannot be used here: {reason}");
        let help = match device {
            DeviceChoice::Cuda(_) => "install what is missing, or write `runtime.device = \"cpu\"`",
            _ => "write `runtime.device = \"cpu\"`",
        };
        problems.value(&at, message, help.to_owned());
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

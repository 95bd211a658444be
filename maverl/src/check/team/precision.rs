//! Precision of products: the one that is not configured, and what f16 demands.

use std::collections::BTreeMap;

use super::worker::own_device;
use crate::check::choice::ConfiguredSeat;
use crate::check::files::Models;
use crate::config::source::{Problems, path};
use crate::config::{Config, DeviceChoice, Dtype};
use crate::plan::WorkerPlan;

/// Returns the precision of each model: without a `dtype`, bf16 if a worker group of the model is on a device without others.
/// A model without worker groups is as one on `runtime.device`.
pub(crate) fn model_precisions(
    config: &Config,
    members: &[ConfiguredSeat],
    problems: &Problems<'_>,
) -> BTreeMap<String, Dtype> {
    let shared = config.runtime.device;
    let only = config.models.keys().next().filter(|_| config.models.len() == 1);
    let mut devices: BTreeMap<String, Vec<DeviceChoice>> = BTreeMap::new();
    for member in members {
        // Agents without a model are reported later.
        let Some(model) = member.config.model.as_ref().or(only) else { continue };
        let group = member.config.worker_group.as_ref().unwrap_or(model);
        let device = own_device(config, group).unwrap_or(shared);
        let its = devices.entry(model.clone()).or_default();
        if !its.contains(&device) {
            its.push(device);
        }
    }
    let mut precisions = BTreeMap::new();
    for (name, model) in &config.models {
        let its = devices.remove(name).unwrap_or_else(|| vec![shared]);
        let given = problems.layers().has(&path(["models", name, "dtype"]));
        let forced = !given && its.into_iter().any(DeviceChoice::is_accelerator);
        precisions.insert(name.clone(), if forced { Dtype::Bf16 } else { model.dtype });
    }
    precisions
}

/// Reports models in f16 whose activations are beyond its range, and scales of the loss that do not begin with a power of two.
pub(crate) fn check_f16(
    config: &Config,
    workers: &[WorkerPlan],
    models: &Models,
    problems: &mut Problems<'_>,
) {
    for name in config.models.keys() {
        let in_f16 = |worker: &&WorkerPlan| worker.model == *name && worker.dtype == Dtype::F16;
        let Some(worker) = workers.iter().find(in_f16) else { continue };
        if let Some(opened) = models.get(name).filter(|opened| opened.shape.beyond_f16) {
            let family = opened.shape.model_type;
            let message = format!(
                "`models.{name}.dtype` is \"f16\": {family} has activations beyond 65,504: bf16 or f32"
            );
            let help = "write `dtype = \"bf16\"`".to_owned();
            problems.value(&path(["models", name, "dtype"]), message, help);
        }
        let start = worker.loss_scale.unwrap_or_default().start;
        if !start.is_power_of_two() {
            let message =
                format!("`models.{name}.loss_scale.start` is {start}, which is no power of two");
            let near = start.next_power_of_two();
            let help = format!("write {near} or {}: scaling by a power of two is exact", near / 2);
            problems.value(&path(["models", name, "loss_scale", "start"]), message, help);
        }
    }
}

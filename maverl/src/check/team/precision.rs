//! Precision of products that is not configured.

use std::collections::BTreeMap;

use super::worker::own_device;
use crate::check::choice::ConfiguredSeat;
use crate::config::source::{Problems, path};
use crate::config::{Config, DeviceChoice, Dtype};

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

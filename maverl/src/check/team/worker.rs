//! Worker groups, derived from the policies on them.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use super::groups::PolicySeats;
use crate::IntoMap;
use crate::check::files::{Models, OpenedModel};
use crate::config::source::{Problems, did_you_mean, list, path};
use crate::config::{Config, DeviceChoice, Dtype, LossScaleOptions};
use crate::files::HfConfig;
use crate::plan::{TokenBytes, WorkerPlan, activation_bytes, model_units, packed_bytes};

/// Returns the worker groups, sorted; `None` if a model could not be opened, which is reported. Reports tables of worker groups
/// that no agent uses.
pub(crate) fn plan_workers(
    config: &Config,
    groups: &BTreeMap<String, PolicySeats<'_>>,
    models: (&Models, &BTreeMap<String, Dtype>),
    problems: &mut Problems<'_>,
) -> Option<Vec<WorkerPlan>> {
    let names: BTreeMap<&str, &str> =
        groups.values().map(|group| (group.worker.as_str(), group.model.as_str())).into_map();
    strangers(config, &names.keys().copied().collect::<Vec<_>>(), problems);
    names.into_iter().map(|names| plan_worker(config, names, models)).collect()
}

/// Returns the worker group of a name on a model; `None` if the model could not be opened.
fn plan_worker(
    config: &Config,
    (name, model): (&str, &str),
    (models, precisions): (&Models, &BTreeMap<String, Dtype>),
) -> Option<WorkerPlan> {
    let OpenedModel { source, parameters, shape, blocks, .. } = models.get(model)?;
    let dtype = precisions[model];
    let in_blocks = dtype == Dtype::File;
    let micro_batch_tokens = own_micro_batch(config, name);
    let tokens = micro_batch_tokens.unwrap_or(config.runtime.micro_batch_tokens).get();
    Some(WorkerPlan {
        name: name.to_owned(),
        model: model.to_owned(),
        source: source.clone(),
        dtype,
        loss_scale: (dtype == Dtype::F16).then(|| model_scale(config, model)),
        device: own_device(config, name),
        micro_batch_tokens,
        parameters: *parameters,
        block_bytes: blocks.as_ref().filter(|_| in_blocks).map(|blocks| blocks.bytes),
        units: model_units(shape),
        layer_pass_bytes: layer_pass_bytes(shape, tokens, dtype),
        packed_bytes: if in_blocks { 0 } else { packed_bytes(shape, dtype.into()) },
        token_bytes: TokenBytes::of(shape, config.runtime.prefill_tokens.get()),
        context: shape.max_position_embeddings,
        chat_template_kwargs: config.models[model].chat_template_kwargs.clone(),
    })
}

/// Returns the scale of the loss of a model with products in f16.
fn model_scale(config: &Config, model: &str) -> LossScaleOptions {
    let written = config.models[model].loss_scale.clone().unwrap_or_default();
    LossScaleOptions::from(&written)
}

/// Returns the device that the table of a worker group sets.
pub(crate) fn own_device(config: &Config, name: &str) -> Option<DeviceChoice> {
    config.worker_groups.get(name)?.device
}

/// Returns the largest micro-batch that the table of a worker group sets.
pub(crate) fn own_micro_batch(config: &Config, name: &str) -> Option<NonZeroUsize> {
    config.worker_groups.get(name)?.micro_batch_tokens
}

/// Returns the bytes of a micro-batch's way through one layer and the head: those of an update with checkpointing, but for
/// the inputs that other layers keep.
fn layer_pass_bytes(shape: &HfConfig, tokens: usize, dtype: Dtype) -> u64 {
    let all = activation_bytes(shape, tokens, tokens, true, dtype.into());
    let others = shape.layers.len().saturating_sub(1) as u64;
    let kept = others.saturating_mul((tokens as u64).saturating_mul(shape.hidden_size as u64 * 4));
    all.saturating_sub(kept)
}

/// Reports tables of worker groups that no agent uses.
fn strangers(config: &Config, workers: &[&str], problems: &mut Problems<'_>) {
    let known = workers.iter().copied();
    for name in config.worker_groups.keys().filter(|name| !workers.contains(&name.as_str())) {
        let message = format!(
            "no agent uses a worker group `{name}`; worker groups of the plan: {}",
            list(known.clone())
        );
        let help = match did_you_mean(name, known.clone()) {
            Some(close) => format!("did you mean `{close}`?"),
            None => format!("write `worker_group = {name:?}` for an agent, or remove the table"),
        };
        problems.key(&path(["worker_groups", name]), message, help);
    }
}

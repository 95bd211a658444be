//! Models whose weights stay in the blocks of a GGUF file (`dtype = "file"`): they are frozen, and candle multiplies them.

use super::policy::Assignment;
use crate::check::files::Models;
use crate::check::purpose::Purpose;
use crate::config::source::{Problems, path};
use crate::config::{Config, DeviceChoice, Dtype, Preset, Trunk};
use crate::plan::{AlgorithmPlan, WorkerPlan, bytes};

/// Bytes of a number in f32.
const NUMBER: u64 = 4;

/// Reports models that are to stay in blocks and are in no GGUF file or on another device than candle's, and weights in blocks that
/// are to be trained.
pub(crate) fn check_blocks(
    (config, algorithm): (&Config, &AlgorithmPlan),
    assignment: &Assignment,
    models: &Models,
    purpose: Purpose,
    problems: &mut Problems<'_>,
) {
    let workers = assignment.workers.iter().enumerate();
    for (index, worker) in workers.filter(|(_, worker)| worker.dtype == Dtype::File) {
        let (model, at) = (&worker.model, path(["models", &worker.model, "dtype"]));
        let Some(opened) = models.get(model) else { continue };
        let Some(blocks) = &opened.blocks else {
            let source = &opened.source;
            let message = format!(
                "`models.{model}.dtype` is \"file\", which keeps the blocks of a GGUF file, and {source} is none"
            );
            let help = "write `dtype = \"f32\"`, or the path of a GGUF file".to_owned();
            problems.value(&at, message, help);
            continue;
        };
        check_device(config, worker, problems);
        let kind = &blocks.kind;
        let mut trained =
            assignment.policies.iter().filter(|policy| policy.worker == index && policy.trained);
        let of_verifier = algorithm.preset == Preset::Verifier;
        if !of_verifier && trained.clone().any(|policy| policy.adapter.is_none()) {
            let message =
                format!("`models.{model}` trains all weights of a base in blocks ({kind})");
            let help = format!(
                "add `[models.{model}.lora]`, or write `dtype = \"f32\"`; `frozen = true` if it is not to be trained"
            );
            problems.key(&path(["models", model]), message, help);
        }
        let own = algorithm.critic.as_ref().is_some_and(|critic| critic.trunk == Trunk::Own);
        let updated = !matches!(purpose, Purpose::Eval | Purpose::Replay);
        if own && updated && trained.next().is_some() {
            let message = format!(
                "the critic trains a copy of all weights of `models.{model}`, a base in blocks ({kind})"
            );
            let help = format!(
                "write `algorithm.advantage.trunk = \"lora\"` or `\"shared\"`, or `models.{model}.dtype = \"f32\"`"
            );
            let trunk = path(["algorithm", "advantage", "trunk"]);
            let given = problems.layers().has(&trunk);
            let at = if given { trunk } else { path(["algorithm", "name"]) };
            problems.value(&at, message, help);
        }
    }
}

/// Reports a worker group on a CPU whose kernels multiply no blocks. Other devices report what they do not support.
fn check_device(config: &Config, worker: &WorkerPlan, problems: &mut Problems<'_>) {
    let device = worker.device.unwrap_or(config.runtime.device);
    if !matches!(device, DeviceChoice::Cpu | DeviceChoice::Auto) {
        return;
    }
    let (model, group) = (&worker.model, &worker.name);
    let key = match worker.device {
        None => "runtime.device".to_owned(),
        Some(_) => format!("worker_groups.{group}.device"),
    };
    let message = format!(
        "`models.{model}.dtype` is \"file\" and `{key}` is \"{device}\": blocks are multiplied by candle"
    );
    let help = format!(
        "write `{key} = \"candle:cpu\"`, or `dtype = \"bf16\"` (weights of {})",
        bytes(worker.parameters * NUMBER)
    );
    problems.value(&path(["models", model, "dtype"]), message, help);
}

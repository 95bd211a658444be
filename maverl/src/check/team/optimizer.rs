//! Rules of optimizers.

use crate::config::source::{Problems, path};
use crate::config::{Config, OptimizerKind, SavedMoments, Shard};
use crate::plan::{AlgorithmPlan, PolicyPlan, WorkerPlan};

/// Reports policies and critics that an optimizer does not train, and moments that are to be divided or rounded and cannot be.
pub(crate) fn check_optimizers(
    config: &Config,
    algorithm: &AlgorithmPlan,
    (policies, workers): (&[PolicyPlan], &[WorkerPlan]),
    problems: &mut Problems<'_>,
) {
    let trained = policies.iter().filter(|policy| policy.trained);
    let mut whole = trained.clone().filter_map(|it| Some((it, it.optim.kind.on_cpu()?)));
    if let Some((first, kind)) = whole.next().filter(|_| config.dist.shard != Shard::None) {
        let message = format!(
            "`dist.shard` is \"{}\", and policy `{}` has `optim.kind = {kind:?}`",
            config.dist.shard.name(),
            first.name
        );
        let help = match kind {
            "muon" => {
                "Muon updates whole matrices, whose momentum is not divided: set one of the two otherwise"
            }
            _ => {
                "moments in 8 bits have whole blocks, and are not divided: set one of the two otherwise"
            }
        };
        problems.conflict(&path(["dist", "shard"]), message, help.to_owned());
    }
    check_saved_moments(config, policies, problems);
    let is_muon = |policy: &&PolicyPlan| policy.optim.kind == OptimizerKind::Muon;
    for policy in trained.filter(is_muon).filter(|policy| policy.adapter.is_some()) {
        let model = &workers[policy.worker].model;
        let message =
            format!("policy `{}` is an adapter with `optim.kind = \"muon\"`", policy.name);
        let help = "Muon updates matrices of the model, which an adapter does not train: write `kind = \"adamw\"`";
        problems.conflict(&path(["models", model, "optim", "kind"]), message, help.to_owned());
    }
    let of_critic = algorithm.critic.as_ref().and_then(|critic| critic.optim().kind.on_cpu());
    if let Some(kind) = of_critic {
        let message = format!("`algorithm.advantage.optim.kind` is {kind:?}");
        let help = "a critic is trained by AdamW: write `kind = \"adamw\"`";
        let at = path(["algorithm", "advantage", "optim", "kind"]);
        problems.conflict(&at, message, help.to_owned());
    }
}

/// Reports moments in 8 bits that checkpoints are to round to bf16. Critics never have them.
fn check_saved_moments(config: &Config, policies: &[PolicyPlan], problems: &mut Problems<'_>) {
    let in_codes =
        |policy: &&PolicyPlan| policy.trained && policy.optim.kind == OptimizerKind::Adamw8bit;
    let first = policies.iter().find(in_codes);
    if let Some(policy) = first.filter(|_| config.checkpoint.moments == SavedMoments::Bf16) {
        let message = format!(
            "`checkpoint.moments` is \"bf16\", and policy `{}` has `optim.kind = \"adamw8bit\"`",
            policy.name
        );
        let help = "moments in 8 bits are not rounded again: write `moments = \"f32\"`, which writes them as they are, in 4 bytes for \
                    each parameter, or `moments = \"none\"`";
        problems.conflict(&path(["checkpoint", "moments"]), message, help.to_owned());
    }
}

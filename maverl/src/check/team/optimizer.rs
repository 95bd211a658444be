//! Rules of optimizers.

use crate::config::source::{Problems, path};
use crate::config::{Config, OptimizerKind, Shard};
use crate::plan::{AlgorithmPlan, PolicyPlan, WorkerPlan};

/// Reports policies and critics that an optimizer does not train, and moments that are to be divided and cannot be.
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

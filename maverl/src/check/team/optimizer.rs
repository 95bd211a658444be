//! Rules of optimizers.

use crate::config::source::{Problems, path};
use crate::config::{Config, OptimizerKind, Shard};
use crate::plan::{AlgorithmPlan, PolicyPlan, WorkerPlan};

/// Reports policies and critics that Muon does not train, and moments of it that are to be divided.
pub(crate) fn check_optimizers(
    config: &Config,
    algorithm: &AlgorithmPlan,
    (policies, workers): (&[PolicyPlan], &[WorkerPlan]),
    problems: &mut Problems<'_>,
) {
    let is_muon = |policy: &&PolicyPlan| policy.trained && policy.optim.kind == OptimizerKind::Muon;
    let mut found = policies.iter().filter(is_muon).peekable();
    if let Some(first) = found.peek().filter(|_| config.dist.shard != Shard::None) {
        let message = format!(
            "`dist.shard` is \"{}\", and policy `{}` has `optim.kind = \"muon\"`",
            config.dist.shard.name(),
            first.name
        );
        let help = "Muon updates whole matrices, whose momentum is not divided: set one of the two otherwise";
        problems.conflict(&path(["dist", "shard"]), message, help.to_owned());
    }
    for policy in found.filter(|policy| policy.adapter.is_some()) {
        let model = &workers[policy.worker].model;
        let message =
            format!("policy `{}` is an adapter with `optim.kind = \"muon\"`", policy.name);
        let help = "Muon updates matrices of the model, which an adapter does not train: write `kind = \"adamw\"`";
        problems.conflict(&path(["models", model, "optim", "kind"]), message, help.to_owned());
    }
    if algorithm.critic.as_ref().is_some_and(|critic| critic.optim().kind == OptimizerKind::Muon) {
        let message = "`algorithm.advantage.optim.kind` is \"muon\"".to_owned();
        let help = "a critic is trained by AdamW: write `kind = \"adamw\"`";
        let at = path(["algorithm", "advantage", "optim", "kind"]);
        problems.conflict(&at, message, help.to_owned());
    }
}

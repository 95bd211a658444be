//! Division of models among ranks.

use crate::check::purpose::Purpose;
use crate::config::source::{Problems, path};
use crate::config::{Config, DistConfig, RolloutWeights, Shard};
use crate::plan::{Plan, UndividedPart};

/// Reports a value of `dist.shard` with which this version does not train.
pub(crate) fn check_shard(config: &Config, purpose: Purpose, problems: &mut Problems<'_>) {
    let shard = config.dist.shard;
    if !trains(purpose) || shard != Shard::Hybrid {
        return;
    }
    let name = shard.name();
    let message = format!(
        "`dist.shard` is \"{name}\", with which this version plans (`maverl check --ranks N`) and does not train"
    );
    let help = "write `dist.shard = \"full\"`, which divides weights over all ranks, or \"optimizer\", which divides the moments";
    problems.value(&path(["dist", "shard"]), message, help.to_owned());
}

/// Reports parts of a plan that ranks do not divide.
pub(super) fn check_divided(plan: &Plan, purpose: Purpose, problems: &mut Problems<'_>) {
    if !trains(purpose) || plan.config.dist.shard != Shard::Full {
        return;
    }
    for UndividedPart { key, message, remedy } in plan.undivided_parts() {
        problems.conflict(&key, format!("`dist.shard` is \"full\", and {message}"), remedy);
    }
}

/// Returns true for a plan of training.
fn trains(purpose: Purpose) -> bool {
    matches!(purpose, Purpose::Train | Purpose::Plan)
}

/// Returns a warning for each key about divided weights, if ranks do not divide them.
pub(super) fn unused_keys(dist: &DistConfig) -> Vec<String> {
    if matches!(dist.shard, Shard::Hybrid | Shard::Full) {
        return Vec::new();
    }
    let keys = [("rollout", dist.rollout != RolloutWeights::default()), ("round", dist.round > 0)];
    let set = keys.into_iter().filter(|(_, is_set)| *is_set);
    set.map(|(key, _)| format!("`dist.{key}` has no effect: `shard` is not \"hybrid\" or \"full\""))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_about_divided_weights_have_no_effect_where_no_weights_are_divided() {
        let set = DistConfig { rollout: RolloutWeights::Layers, round: 2, ..DistConfig::default() };
        let found = unused_keys(&set).join("\n");
        assert!(found.contains("`dist.rollout` has") && found.contains("`dist.round` has"));
        assert!(unused_keys(&DistConfig { shard: Shard::Full, ..set }).is_empty());
        assert!(unused_keys(&DistConfig::default()).is_empty());
    }
}

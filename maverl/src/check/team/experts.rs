//! Checks of the keys of mixtures of experts.

use crate::check::files::{Models, OpenedModel};
use crate::config::Config;
use crate::config::source::{Problems, path};
use crate::plan::AlgorithmPlan;

/// Returns a warning if the load of experts is balanced and no model has experts.
pub(crate) fn unused_balance(algorithm: &AlgorithmPlan, models: &Models) -> Option<String> {
    let experts = models.values().any(has_experts);
    (algorithm.router_aux_coef != 0.0 && !experts).then(|| {
        "`algorithm.router_aux_coef` has no effect: no model is a mixture of experts".to_owned()
    })
}

/// Reports rollout servers that are asked for the experts of tokens, and sample for a model without experts.
pub(crate) fn check_router_replay(config: &Config, models: &Models, problems: &mut Problems<'_>) {
    for (name, model) in &config.models {
        let Some(table) = &model.rollout_servers else { continue };
        let replays = config.rollout_servers.get(table).is_some_and(|of| of.router_replay);
        if replays && models.get(name).is_some_and(|model| !has_experts(model)) {
            let message = format!(
                "`rollout_servers.{table}.router_replay` is true, and model `{name}` is no mixture of experts"
            );
            let help = "remove it: only experts are replayed".to_owned();
            problems.value(&path(["rollout_servers", table, "router_replay"]), message, help);
        }
    }
}

/// Returns true if a model has experts.
fn has_experts(model: &OpenedModel) -> bool {
    model.shape.layers.iter().any(|layer| layer.mlp.experts().is_some())
}

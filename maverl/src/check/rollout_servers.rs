//! Inference servers that sample for policies: their settings, and policies whose weights they cannot be given.

use std::collections::BTreeSet;

use super::diagnostic::{Problems, path, suggestion, within};
use crate::config::{Config, RolloutServerConfig, ServerKind};
use crate::plan::{PolicyPlan, WorkerPlan};

/// Reports servers with invalid settings, and models with servers that are not there. Returns warnings about servers that no
/// model names.
pub(super) fn check(config: &Config, problems: &mut Problems<'_>) -> Vec<String> {
    for (name, servers) in &config.rollout_servers {
        table(name, servers, problems);
    }
    let mut used = BTreeSet::new();
    for (name, model) in &config.models {
        let Some(servers) = &model.rollout_servers else { continue };
        let at = path(["models", name, "rollout_servers"]);
        if !config.rollout_servers.contains_key(servers) {
            let names = config.rollout_servers.keys().map(String::as_str);
            let message = format!("no table `[rollout_servers.{servers}]`");
            problems.value(&at, message, suggestion(servers, names));
        } else if !used.insert(servers.as_str()) {
            let message = format!("`{servers}` are the rollout servers of two models");
            let help = "servers hold one base: give each model servers of its own".to_owned();
            problems.value(&at, message, help);
        }
    }
    let unused = config.rollout_servers.keys().filter(|name| !used.contains(name.as_str()));
    let warning = |name: &String| {
        format!(
            "`[rollout_servers.{name}]` has no effect: no model has `rollout_servers = \"{name}\"`"
        )
    };
    unused.map(warning).collect()
}

fn table(name: &str, servers: &RolloutServerConfig, problems: &mut Problems<'_>) {
    let table = path(["rollout_servers", name]);
    if servers.kind.is_none() {
        let message = format!("rollout servers `{name}` have no `kind`");
        problems.key(&table, message, "write `kind = \"sglang\"` or `kind = \"vllm\"`".to_owned());
    }
    let urls = within(&table, "urls");
    if servers.urls.is_empty() {
        let message = format!("rollout servers `{name}` have no `urls`");
        problems.key(&table, message, "write `urls = [\"http://HOST:PORT\"]`".to_owned());
    }
    let mut seen = BTreeSet::new();
    for url in &servers.urls {
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            let message = format!(
                "`rollout_servers.{name}.urls` has {url:?}; a URL begins with http:// or https://"
            );
            problems.value(&urls, message, None);
        } else if ["/v1", "/generate"].iter().any(|end| url.trim_end_matches('/').ends_with(end)) {
            let message = format!("`rollout_servers.{name}.urls` has {url:?}, which has a path");
            let help = "write the URL of the server alone, as `http://HOST:PORT`".to_owned();
            problems.value(&urls, message, help);
        }
        if !seen.insert(url.trim_end_matches('/')) {
            let message = format!("`rollout_servers.{name}.urls` has {url:?} twice");
            problems.value(&urls, message, "remove one of them".to_owned());
        }
    }
    let unset = |name: &&String| std::env::var_os(name).is_none_or(|key| key.is_empty());
    if let Some(variable) = servers.key_env.as_ref().filter(unset) {
        let message = format!("the environment variable `{variable}` is not set, or empty");
        problems.value(&within(&table, "key_env"), message, None);
    }
}

/// Reports policies whose weights their servers cannot be given.
pub(super) fn policies(
    config: &Config,
    policies: &[PolicyPlan],
    workers: &[WorkerPlan],
    problems: &mut Problems<'_>,
) {
    for (name, model) in &config.models {
        let servers = model.rollout_servers.as_ref();
        let Some((table, servers)) =
            servers.and_then(|servers| config.rollout_servers.get_key_value(servers))
        else {
            continue;
        };
        let its: Vec<&PolicyPlan> =
            policies.iter().filter(|policy| workers[policy.worker].model == *name).collect();
        let given: Vec<&PolicyPlan> = its.iter().copied().filter(|policy| gives(policy)).collect();
        let whole: Vec<&str> = given
            .iter()
            .filter(|policy| policy.adapter.is_none())
            .map(|policy| policy.name.as_str())
            .collect();
        let at = path(["models", name, "rollout_servers"]);
        if let (Some(ServerKind::Vllm), Some(policy)) = (servers.kind, whole.first()) {
            let message = format!(
                "policy `{policy}` is trained in full, and vLLM servers are given adapters alone"
            );
            let help = format!(
                "write `lora = {{ rank = 16 }}` in `[models.{name}]`, or use SGLang servers"
            );
            problems.value(&at, message, help);
        }
        if let [first, second, ..] = whole[..] {
            let message = format!(
                "policies `{first}` and `{second}` are trained in full, and servers hold one of them"
            );
            let help =
                "train adapters (`lora`), or give each policy a model and servers of its own";
            problems.value(&at, message, help.to_owned());
        }
        if let Some(policy) = given.first().filter(|_| servers.weights_dir.is_none()) {
            let message = format!(
                "rollout servers `{table}` have no `weights_dir`, and policy `{}` has weights to give them",
                policy.name
            );
            let help = "write a directory that the servers see under the same path".to_owned();
            problems.key(&path(["rollout_servers", table]), message, help);
        }
        let base = its.iter().find(|policy| policy.adapter.is_none() && !gives(policy));
        let unnamed = servers.kind == Some(ServerKind::Vllm) && servers.model.is_none();
        if let Some(policy) = base.filter(|_| unnamed) {
            let message = format!(
                "rollout servers `{table}` have no `model`, and policy `{}` has no adapter",
                policy.name
            );
            let help =
                "write the name of the base on the servers (`--served-model-name`)".to_owned();
            problems.key(&path(["rollout_servers", table]), message, help);
        }
    }
}

/// Returns true if weights of a policy are given to its servers: it is trained, or an adapter.
fn gives(policy: &PolicyPlan) -> bool {
    policy.trained || policy.adapter.is_some()
}

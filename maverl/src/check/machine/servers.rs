//! Inference servers that sample for policies: their settings, and policies whose weights they cannot be given.

use std::collections::BTreeSet;

use super::keys::check_key_env;
use crate::client::lacks_https;
use crate::config::source::{Problems, path, path_within, suggestion};
use crate::config::{Config, RolloutServerConfig, ServerKind};
use crate::plan::{Plan, PolicyPlan};

/// Reports servers with invalid settings, and models with servers that are not there.
pub(crate) fn check_rollout_servers(config: &Config, problems: &mut Problems<'_>) {
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
}

fn table(name: &str, servers: &RolloutServerConfig, problems: &mut Problems<'_>) {
    let table = path(["rollout_servers", name]);
    if servers.kind.is_none() {
        let message = format!("rollout servers `{name}` have no `kind`");
        let at = path_within(&table, "kind");
        problems.key(&at, message, "write `kind = \"sglang\"` or `kind = \"vllm\"`".to_owned());
    }
    if servers.urls.is_empty() {
        let message = format!("rollout servers `{name}` have no `urls`");
        let at = path_within(&table, "urls");
        problems.key(&at, message, "write `urls = [\"http://HOST:PORT\"]`".to_owned());
    }
    let wrong = wrong_urls(&servers.urls);
    if !wrong.is_empty() {
        let message = format!("`rollout_servers.{name}.urls` has {}", wrong.join("; "));
        let help = "write the URL of each server once, without a path, as `http://HOST:PORT`";
        problems.value(&path_within(&table, "urls"), message, help.to_owned());
    }
    check_key_env(servers.key_env.as_deref(), &table, problems);
}

/// Returns URLs that are no addresses of servers, each with the reason.
fn wrong_urls(urls: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let urls = urls.iter().map(|url| url.trim_end_matches('/'));
    let wrong = urls.filter_map(|url| Some((url, wrong_url(url, !seen.insert(url))?)));
    wrong.map(|(url, reason)| format!("{url:?}, which {reason}")).collect()
}

/// Returns the reason why a URL is no address of a server, if it is none. `again` is true for one that was there before.
fn wrong_url(url: &str, again: bool) -> Option<&'static str> {
    match url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")) {
        None => Some("does not begin with http:// or https://"),
        Some("") => Some("has no host"),
        Some(address) if address.contains(['/', '?', '#']) => Some("has a path"),
        Some(_) if again => Some("is there twice"),
        Some(_) => lacks_https(url),
    }
}

/// Reports policies whose weights their servers cannot be given. Returns warnings about servers that no model names.
pub(crate) fn check_served_policies(plan: &Plan, problems: &mut Problems<'_>) -> Vec<String> {
    let config = &plan.config;
    for (name, model) in &config.models {
        let servers = model.rollout_servers.as_ref();
        let servers = servers.and_then(|servers| config.rollout_servers.get_key_value(servers));
        if let Some(servers) = servers {
            let its = plan.policies.iter();
            let its = its.filter(|policy| plan.workers[policy.worker].model == *name);
            of_model(name, servers, &its.collect::<Vec<_>>(), problems);
        }
    }
    let models = config.models.values();
    let named: Vec<&String> = models.filter_map(|model| model.rollout_servers.as_ref()).collect();
    let unused = config.rollout_servers.keys().filter(|name| !named.contains(name));
    unused.map(unused_warning).collect()
}

fn unused_warning(name: &String) -> String {
    format!("`[rollout_servers.{name}]` has no effect: no model has `rollout_servers = \"{name}\"`")
}

/// Reports policies of a model whose weights its servers cannot be given.
fn of_model(
    name: &str,
    (table, servers): (&String, &RolloutServerConfig),
    its: &[&PolicyPlan],
    problems: &mut Problems<'_>,
) {
    let given: Vec<&PolicyPlan> = its.iter().copied().filter(|policy| gives(policy)).collect();
    let whole: Vec<&str> = given
        .iter()
        .filter(|policy| policy.adapter.is_none())
        .map(|policy| policy.name.as_str())
        .collect();
    let at = path(["models", name, "rollout_servers"]);
    if let [first, second, ..] = whole[..] {
        let message = format!(
            "policies `{first}` and `{second}` are trained in full, and servers hold one of them"
        );
        let help = "train adapters (`lora`), or give each policy a model and servers of its own";
        problems.value(&at, message, help.to_owned());
    }
    if let Some(policy) = given.first().filter(|_| servers.weights_dir.is_none()) {
        let message = format!(
            "rollout servers `{table}` have no `weights_dir`, and policy `{}` has weights to give them",
            policy.name
        );
        let help = "write a directory that the servers see under the same path".to_owned();
        problems.key(&path(["rollout_servers", table, "weights_dir"]), message, help);
    }
    let base = its.iter().find(|policy| policy.adapter.is_none() && !gives(policy));
    let unnamed = servers.kind == Some(ServerKind::Vllm) && servers.model.is_none();
    if let Some(policy) = base.filter(|_| unnamed) {
        let message = format!(
            "rollout servers `{table}` have no `model`, and policy `{}` has no adapter",
            policy.name
        );
        let help = "write the name of the base on the servers (`--served-model-name`)".to_owned();
        problems.key(&path(["rollout_servers", table, "model"]), message, help);
    }
}

/// Returns true if weights of a policy are given to its servers: it is trained, or an adapter.
fn gives(policy: &PolicyPlan) -> bool {
    policy.trained || policy.adapter.is_some()
}

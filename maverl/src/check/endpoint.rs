//! Agents that are served by endpoints instead of models of the run.

use std::path::Path;

use super::diagnostic::{Problems, path, suggestion, within};
use super::team::{self, Member};
use crate::client::lacks_https;
use crate::config::{Config, EndpointConfig};
use crate::data;
use crate::plan::{EndpointPlan, Sampling};

/// Reports endpoints with invalid settings.
pub(super) fn check(config: &Config, base: &Path, problems: &mut Problems<'_>) {
    for (name, endpoint) in &config.endpoints {
        let table = path(["endpoints", name]);
        let EndpointConfig { url, model, script, .. } = endpoint;
        let wrong = match (url, model, script) {
            (Some(_), _, Some(_)) => "has a `url` and a `script`",
            (None, _, None) => "has neither a `url` nor a `script`",
            (Some(_), None, None) => "has a `url` and no `model`",
            _ => "",
        };
        if !wrong.is_empty() {
            let help = "write `url` and `model` of a server, or `script`, a file of replies";
            problems.key(&table, format!("endpoint `{name}` {wrong}"), help.to_owned());
        }
        let web = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        if let Some(url) = url.as_ref().filter(|url| !web(url)) {
            let message =
                format!("`endpoints.{name}.url` is {url:?}; it begins with http:// or https://");
            problems.value(&within(&table, "url"), message, None);
        }
        if let Some(reason) = url.as_deref().and_then(lacks_https) {
            let message = format!("`endpoints.{name}.url` {reason}");
            problems.value(&within(&table, "url"), message, None);
        }
        if let Some(Err(error)) = script.as_ref().map(|script| data::script(&base.join(script))) {
            problems.value(&within(&table, "script"), error.to_string(), None);
        }
        let unset = |name: &&String| std::env::var_os(name).is_none_or(|key| key.is_empty());
        if let Some(variable) = endpoint.key_env.as_ref().filter(unset) {
            let message = format!("the environment variable `{variable}` is not set, or empty");
            problems.value(&within(&table, "key_env"), message, None);
        }
    }
}

/// Removes the seats of endpoints from the team: they have no policy.
pub(super) fn take(
    config: &Config,
    members: Vec<Member>,
    problems: &mut Problems<'_>,
) -> (Vec<Member>, Vec<EndpointPlan>) {
    let (outside, inside): (Vec<Member>, Vec<Member>) =
        members.into_iter().partition(|member| member.config.endpoint.is_some());
    let plans = outside.into_iter().filter_map(|member| plan(config, member, problems));
    let plans = plans.collect();
    (inside, plans)
}

fn plan(config: &Config, member: Member, problems: &mut Problems<'_>) -> Option<EndpointPlan> {
    let name = member.config.endpoint.clone()?;
    let tables = team::tables(&member.seat);
    // The table that names it is first.
    let at = |key: &str| within(&tables[tables.len() - 1], key);
    let Some(endpoint) = config.endpoints.get(&name) else {
        let message = format!("no endpoint is called `{name}`");
        let names = config.endpoints.keys().map(String::as_str);
        problems.value(&at("endpoint"), message, suggestion(&name, names));
        return None;
    };
    let given = [
        ("model", member.config.model.is_some()),
        ("worker_group", member.config.worker_group.is_some()),
        ("adapter", member.config.adapter.is_some()),
        ("lora", member.config.lora.is_some()),
        ("optim", member.config.optim.is_some()),
        ("loss", member.config.loss.is_some()),
        ("frozen", member.config.frozen == Some(false)),
    ];
    for (key, _) in given.into_iter().filter(|(_, given)| *given) {
        let message = format!(
            "`{}` is spoken for by the endpoint `{name}`, which has no `{key}` and is never trained",
            member.seat
        );
        problems.key(&at(key), message, "remove one of the two".to_owned());
    }
    let sampling = member.config.sampling.unwrap_or_default().over(&config.sampling);
    Some(EndpointPlan {
        seat: member.seat,
        name,
        endpoint: endpoint.clone(),
        sampling: Sampling::from(&sampling),
        options: member.options,
    })
}

//! Policies that are adapters, and their base models.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::diagnostic::{Problems, key, path, within};
use super::missing::{self, Wanted};
use super::models::Opened;
use super::policy::{Group, agree, source, trained, values};
use super::team::Member;
use crate::config::{self, AgentConfig, Config, LoraSpec, ModelConfig};
use crate::net::{LoraConfig, lora};
use crate::plan::AdapterPlan;

/// Returns the adapter that adapters on a model start from; an unreadable one is reported.
pub(super) fn start(
    name: &str,
    model: &ModelConfig,
    base: &Path,
    problems: &mut Problems<'_>,
) -> Option<(PathBuf, LoraConfig)> {
    let given = Path::new(model.adapter.as_ref()?);
    let dir = base.join(given);
    if !dir.is_dir() {
        let message = missing::message(given, base, Wanted::Directory);
        let help = missing::help(given, base, Wanted::Directory);
        problems.value(&path(["models", name, "adapter"]), message, help);
        return None;
    }
    match LoraConfig::read(&dir) {
        Ok(lora) => Some((dir, lora)),
        Err(error) => {
            let help = "`adapter` of a model names a PEFT directory (`adapter_config.json`, \
                        `adapter_model.safetensors`), relative to the file that names it";
            problems.value(&path(["models", name, "adapter"]), error.to_string(), help.to_owned());
            None
        }
    }
}

/// Returns the adapter settings of a member, everything inherited; `None` if it has no adapter.
fn settled(config: &Config, member: &Member, model: &str) -> Option<config::LoraConfig> {
    let model = &config.models[model];
    let own = &member.config;
    let wanted = own.adapter.is_some() || own.lora.is_some();
    let inherited = model.adapter.is_some() || model.lora.is_some();
    let lora = |lora: &Option<config::LoraConfig>| lora.clone().unwrap_or_default();
    (wanted || inherited).then(|| lora(&own.lora).over(&lora(&model.lora)))
}

/// Returns the adapter of a policy, if it is one. Reports settings on which its members disagree and settings that do
/// not fit the base.
pub(super) fn plan(
    config: &Config,
    policy: &str,
    group: &Group<'_>,
    opened: &Opened,
    problems: &mut Problems<'_>,
) -> Option<AdapterPlan> {
    let members = || group.members.iter().copied();
    let all = members().map(|member| (member, settled(config, member, &group.model)));
    let (with, without): (Vec<_>, Vec<_>) = all.partition(|(_, lora)| lora.is_some());
    let ((first, own), rest) = with.split_first().map(|(first, rest)| (first.clone(), rest))?;
    if let Some((other, _)) = without.first() {
        one_sided(config, policy, group, [first, other], problems);
        return None;
    }
    let base = &opened.shape;
    let start = match &opened.start {
        None => None,
        Some((dir, lora)) => match lora.expanded(base) {
            Ok(lora) => Some((dir, lora)),
            Err(error) => {
                problems.value(&path(["models", &group.model, "adapter"]), error.to_string(), None);
                return None;
            }
        },
    };
    let from = start
        .as_ref()
        .map(|(_, lora)| config::LoraConfig::from(&LoraSpec::from(lora)))
        .unwrap_or_default();
    let full = |lora: &Option<config::LoraConfig>| {
        lora.clone().unwrap_or_default().over(&from).over(&defaults())
    };
    let settled = full(&own);
    for (member, lora) in rest {
        let found = [(first, values(&settled)), (*member, values(&full(lora)))];
        agree(config, policy, group, "lora", &found, problems);
    }
    let dir = start.as_ref().map(|(dir, _)| (*dir).clone());
    if let Some(error) = dir.as_ref().and_then(|dir| lora::inspect(dir, base).err()) {
        problems.value(&path(["models", &group.model, "adapter"]), error.to_string(), None);
        return None;
    }
    match AdapterPlan::new(&LoraSpec::from(&settled), dir, base) {
        Ok(plan) => {
            let Some((dir, lora)) = &start else { return Some(plan) };
            same_shape(group, first, &plan.lora, (dir, lora), problems);
            // What expressions choose, no key of a configuration says.
            opened.start.as_ref().and_then(|(_, lora)| plan.started(lora, base).ok())
        }
        Err(error) => {
            let at = lora_key(problems, group, first, "target_modules");
            problems.value(&at, error.to_string(), None);
            None
        }
    }
}

/// Returns the keys of an adapter with their defaults.
fn defaults() -> config::LoraConfig {
    config::LoraConfig::from(&LoraSpec::default())
}

/// Returns the path of the key that sets a part of a member's adapter.
fn lora_key(
    problems: &Problems<'_>,
    group: &Group<'_>,
    member: &Member,
    name: &str,
) -> Vec<String> {
    let shared = path(["models", &group.model, "lora", name]);
    source(problems, &member.seat, &format!("lora.{name}"), Some(shared))
}

/// Reports an adapter that starts from one of another shape.
fn same_shape(
    group: &Group<'_>,
    member: &Member,
    lora: &LoraConfig,
    (dir, start): (&Path, &LoraConfig),
    problems: &mut Problems<'_>,
) {
    let [ours, theirs] =
        [lora, start].map(|lora| values(&config::LoraConfig::from(&LoraSpec::from(lora))));
    for (name, value) in ours.iter().filter(|(name, value)| theirs[*name] != **value) {
        if name == "dropout" {
            continue;
        }
        let at = lora_key(problems, group, member, name);
        let there = &theirs[name];
        let message =
            format!("`lora.{name}` is {value}, but the adapter in {} has {there}", dir.display());
        problems.value(&at, message, "remove it: the directory says it".to_owned());
    }
}

/// Reports a policy that is an adapter for only one of its members.
fn one_sided(
    config: &Config,
    policy: &str,
    group: &Group<'_>,
    [with, without]: [&Member; 2],
    problems: &mut Problems<'_>,
) {
    let message = format!(
        "policy `{policy}` is an adapter for `{}`, but the model's own weights for `{}`",
        with.seat, without.seat
    );
    let help = format!(
        "write `lora` in `[{}]` for both, or {}",
        key(&path(["models", &group.model])),
        apart(config, &group.model, with)
    );
    let at = adapter_key(problems, group, with);
    problems.values(&[(at, format!("for `{}`", with.seat))], message, help);
}

/// Returns the path of the key that makes a member's policy an adapter.
fn adapter_key(problems: &Problems<'_>, group: &Group<'_>, member: &Member) -> Vec<String> {
    let model = path(["models", &group.model]);
    let at = ["adapter", "lora"].map(|name| source(problems, &member.seat, name, None));
    let shared = ["lora", "adapter"].map(|name| within(&model, name));
    let mut given = at.into_iter().chain(shared).filter(|path| problems.layers().has(path));
    given.next().unwrap_or(model)
}

/// Reports weights that are trained under an adapter.
pub(super) fn bases(
    config: &Config,
    groups: &BTreeMap<String, Group<'_>>,
    problems: &mut Problems<'_>,
) {
    for own in groups.values() {
        let is_adapter = |group: &Group<'_>| {
            group.members.iter().any(|member| settled(config, member, &group.model).is_some())
        };
        let mut learners = own.members.iter().filter(|m| trained(config, m, &own.model));
        let Some(learner) = learners.next().filter(|_| !is_adapter(own)) else { continue };
        let on_it =
            |(_, group): &(&String, &Group<'_>)| group.worker == own.worker && is_adapter(group);
        let Some((name, group)) = groups.iter().find(on_it) else { continue };
        let sitter = group.members[0];
        let message = format!(
            "`{}` trains the weights that adapter `{name}` of `{}` sits on",
            learner.seat, sitter.seat
        );
        let help = format!(
            "weights under an adapter stay as they are: with `lora` in `[{}]` `{}` trains an adapter too; or freeze it, \
             or give it its own copy with `worker_group`",
            key(&path(["models", &own.model])),
            learner.seat
        );
        let notes = [(adapter_key(problems, group, sitter), format!("for `{}`", sitter.seat))];
        problems.values(&notes, message, help);
    }
}

/// Reports an adapter name that two worker groups use.
pub(super) fn elsewhere(policy: &str, places: [(&Member, &str); 2], problems: &mut Problems<'_>) {
    let [(member, worker), (other, held)] = places;
    let message = format!(
        "policy `{policy}` is on worker `{held}` for `{}`, but on `{worker}` for `{}`",
        other.seat, member.seat
    );
    let notes = [member, other].map(|member| {
        let worker = source(problems, &member.seat, "worker_group", None);
        (source(problems, &member.seat, "adapter", Some(worker)), format!("for `{}`", member.seat))
    });
    let help = "an adapter sits on one base: give one of them another `adapter` name".to_owned();
    problems.values(&notes, message, help);
}

/// Returns help on giving an agent its own policy.
pub(super) fn apart(config: &Config, model: &str, member: &Member) -> String {
    let seat = &member.seat;
    let table = key(&path(["agents", &seat.agent]));
    let name = seat.agent.rsplit('/').next().unwrap_or_default();
    match settled(config, member, model) {
        Some(_) => format!(
            "give `{seat}` its own adapter with `adapter = \"{name}\"`, or its own copy of the base with \
             `worker_group = \"{name}\"`, in `[{table}]`"
        ),
        None => format!(
            "give `{seat}` its own copy with `worker_group = \"{name}\"` in `[{table}]`, or, with `lora` in `[{}]`, its own \
             adapter with `adapter = \"{name}\"`",
            key(&path(["models", model]))
        ),
    }
}

/// Returns the shape of a model's adapters, without what the directory that they start from decides; `None` if it has none.
pub(super) fn of_model(model: &ModelConfig) -> Option<config::LoraConfig> {
    let defaults = defaults();
    let dropout = config::LoraConfig { dropout: defaults.dropout, ..Default::default() };
    let base = if model.adapter.is_some() { &dropout } else { &defaults };
    let given = model.adapter.is_some() || model.lora.is_some();
    given.then(|| model.lora.clone().unwrap_or_default().over(base))
}

/// Returns the shape of an agent's adapter; with all its keys if it inherits none from its model.
pub(super) fn of_agent(
    agent: &AgentConfig,
    models: &BTreeMap<String, ModelConfig>,
) -> Option<config::LoraConfig> {
    let model = agent.model.as_ref().and_then(|name| models.get(name));
    let inherits = model.is_some_and(|model| model.lora.is_some());
    let own = agent.adapter.is_some() || agent.lora.is_some();
    if inherits || !own || !agent.seats.is_empty() {
        return agent.lora.clone();
    }
    Some(agent.lora.clone().unwrap_or_default().over(&defaults()))
}

//! Policies that are adapters, and their base models.

use std::collections::BTreeMap;
use std::path::Path;

use super::agreement::{agree, values};
use super::groups::PolicySeats;
use crate::check::choice::{ConfiguredSeat, setting_path};
use crate::check::files::OpenedModel;
use crate::check::resolve::{apart_help, default_lora, member_lora};
use crate::config::source::{Problems, key, path, path_within};
use crate::config::{self, Config, LoraSpec};
use crate::net::LoraConfig;
use crate::plan::AdapterPlan;

/// Returns the adapter of a policy, if it is one. Reports settings on which its members disagree and settings that do
/// not fit the base.
pub(crate) fn plan_adapter(
    config: &Config,
    policy: &str,
    group: &PolicySeats<'_>,
    opened: &OpenedModel,
    problems: &mut Problems<'_>,
) -> Option<AdapterPlan> {
    let members = group.members.iter().copied();
    let all = members.map(|member| (member, member_lora(config, member, &group.model)));
    let (with, without): (Vec<_>, Vec<_>) = all.partition(|(_, lora)| lora.is_some());
    let ((first, own), rest) = with.split_first().map(|(first, rest)| (first.clone(), rest))?;
    if let Some((other, _)) = without.first() {
        one_sided(config, policy, group, [first, other], problems);
        return None;
    }
    let base = &opened.shape;
    let start = match &opened.start {
        None => None,
        Some(start) => match start.lora.expand_targets(base) {
            Ok(lora) => Some((start, lora)),
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
    let settled = own.unwrap_or_default().over(&from).over(&default_lora());
    for (member, lora) in rest {
        let lora = lora.clone().unwrap_or_default().over(&from).over(&default_lora());
        let found = [(first, values(&settled)), (*member, values(&lora))];
        agree(config, policy, group, "lora", &found, problems);
    }
    let dir = start.as_ref().map(|(start, _)| start.dir.clone());
    if let Some(unfit) = start.as_ref().and_then(|(start, _)| start.unfit.clone()) {
        problems.value(&path(["models", &group.model, "adapter"]), unfit, None);
        return None;
    }
    match AdapterPlan::new(&LoraSpec::from(&settled), dir, base) {
        Ok(plan) => {
            let Some((start, lora)) = &start else { return Some(plan) };
            same_shape(group, first, &plan.lora, (&start.dir, lora), problems);
            // What expressions choose, no key of a configuration says.
            plan.started_from(&start.lora, base).ok()
        }
        Err(error) => {
            let at = lora_key(problems, group, first, "target_modules");
            problems.value(&at, error.to_string(), None);
            None
        }
    }
}

/// Returns the path of the key that sets a part of a member's adapter.
fn lora_key(
    problems: &Problems<'_>,
    group: &PolicySeats<'_>,
    member: &ConfiguredSeat,
    name: &str,
) -> Vec<String> {
    let shared = path(["models", &group.model, "lora", name]);
    setting_path(problems, &member.seat, &format!("lora.{name}"), Some(shared))
}

/// Reports an adapter that starts from one of another shape.
fn same_shape(
    group: &PolicySeats<'_>,
    member: &ConfiguredSeat,
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
    group: &PolicySeats<'_>,
    [with, without]: [&ConfiguredSeat; 2],
    problems: &mut Problems<'_>,
) {
    let message = format!(
        "policy `{policy}` is an adapter for `{}`, but the model's own weights for `{}`",
        with.seat, without.seat
    );
    let help = format!(
        "write `lora` in `[{}]` for both, or {}",
        key(&path(["models", &group.model])),
        apart_help(config, &group.model, with)
    );
    let at = adapter_key(problems, group, with);
    problems.values(&[(at, format!("for `{}`", with.seat))], message, help);
}

/// Returns the path of the key that makes a member's policy an adapter.
fn adapter_key(
    problems: &Problems<'_>,
    group: &PolicySeats<'_>,
    member: &ConfiguredSeat,
) -> Vec<String> {
    let model = path(["models", &group.model]);
    let at = ["adapter", "lora"].map(|name| setting_path(problems, &member.seat, name, None));
    let shared = ["lora", "adapter"].map(|name| path_within(&model, name));
    let mut given = at.into_iter().chain(shared).filter(|path| problems.layers().has(path));
    given.next().unwrap_or(model)
}

/// Returns true if the policy of some seats is an adapter.
pub(super) fn is_adapter(config: &Config, group: &PolicySeats<'_>) -> bool {
    group.members.iter().any(|member| member_lora(config, member, &group.model).is_some())
}

/// Reports weights that are trained under an adapter.
pub(crate) fn check_bases(
    config: &Config,
    groups: &BTreeMap<String, PolicySeats<'_>>,
    problems: &mut Problems<'_>,
) {
    for own in groups.values() {
        let mut learners = own.members.iter().filter(|m| m.is_trained(config, &own.model));
        let Some(learner) = learners.next().filter(|_| !is_adapter(config, own)) else { continue };
        let mut on_it = groups.iter().filter(|(_, group)| group.worker == own.worker);
        let adapter = on_it.find(|(_, group)| is_adapter(config, group));
        let Some((name, group)) = adapter else { continue };
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

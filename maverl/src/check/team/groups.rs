//! Seats by policy, and policies by worker group.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::choice::{ConfiguredSeat, setting_path};
use crate::config::Config;
use crate::config::source::{Problems, did_you_mean, key, list, path};

/// Seats of one policy.
pub(crate) struct PolicySeats<'m> {
    pub(crate) worker: String,
    pub(crate) model: String,
    pub(crate) members: Vec<&'m ConfiguredSeat>,
}

/// Groups members by policy.
pub(crate) fn policy_groups<'m>(
    config: &Config,
    members: &'m [ConfiguredSeat],
    problems: &mut Problems<'_>,
) -> Option<BTreeMap<String, PolicySeats<'m>>> {
    let mut groups: BTreeMap<String, PolicySeats<'m>> = BTreeMap::new();
    let mut workers: BTreeMap<String, (String, &ConfiguredSeat)> = BTreeMap::new();
    let mut undecided_agents = BTreeSet::new();
    let mut fine = true;
    for member in members {
        let Some(model) = model(config, member, problems) else {
            fine = false;
            if member.config.model.is_none() {
                undecided_agents.insert(member.seat.agent.as_str());
            }
            continue;
        };
        if config.models[&model].frozen && member.config.frozen == Some(false) {
            let message =
                format!("`{}` is to be trained, but its model `{model}` is frozen", member.seat);
            let notes = [
                (setting_path(problems, &member.seat, "frozen", None), "trained".to_owned()),
                (path(["models", &model, "frozen"]), "frozen".to_owned()),
            ];
            problems.values(&notes, message, "remove one of the two".to_owned());
        }
        let worker = member.config.worker_group.clone().unwrap_or_else(|| model.clone());
        let (held, first) = workers.entry(worker.clone()).or_insert((model.clone(), member));
        if *held != model {
            other_model(&worker, [(member, model.as_str()), (*first, held.as_str())], problems);
        }
        let policy = member.config.adapter.clone().unwrap_or_else(|| worker.clone());
        let group = groups.entry(policy.clone()).or_insert_with(|| PolicySeats {
            worker: worker.clone(),
            model,
            members: Vec::new(),
        });
        if group.worker != worker {
            let places = [(member, worker.as_str()), (group.members[0], group.worker.as_str())];
            two_groups(&policy, places, problems);
        }
        group.members.push(member);
    }
    report_undecided(config, &undecided_agents, problems);
    fine.then_some(groups)
}

/// Reports a worker group with two models.
fn other_model(worker: &str, found: [(&ConfiguredSeat, &str); 2], problems: &mut Problems<'_>) {
    let [(member, model), (other, held)] = found;
    let message = format!(
        "worker `{worker}` is model `{held}` for `{}`, but model `{model}` for `{}`",
        other.seat, member.seat
    );
    let notes = [member, other].map(|member| {
        let at =
            setting_path(problems, &member.seat, "worker_group", Some(path(["models", worker])));
        (at, format!("for `{}`", member.seat))
    });
    let help =
        "a worker group holds one model: give one of them another `worker_group` name".to_owned();
    problems.values(&notes, message, help);
}

/// Returns the name of a member's model.
fn model(config: &Config, member: &ConfiguredSeat, problems: &mut Problems<'_>) -> Option<String> {
    let known = config.models.keys().map(String::as_str);
    let at = setting_path(problems, &member.seat, "model", None);
    match &member.config.model {
        Some(name) if config.models.contains_key(name) => Some(name.clone()),
        Some(name) => {
            let message = format!(
                "`{}` is {name:?}, but `[models]` has only {}",
                key(&at),
                list(known.clone())
            );
            let help = did_you_mean(name, known).map(|close| format!("did you mean `{close}`?"));
            problems.value(&at, message, help);
            None
        }
        None if config.models.len() == 1 => config.models.keys().next().cloned(),
        None => None,
    }
}

/// Reports agents whose model is ambiguous.
fn report_undecided(config: &Config, agents: &BTreeSet<&str>, problems: &mut Problems<'_>) {
    let models = config.models.keys();
    let (Some(agent), Some(model)) = (agents.first(), models.clone().next()) else { return };
    let table = path(["agents", agent]);
    let help = format!("write `model = \"{model}\"` in `[{}]`", key(&table));
    let message = format!(
        "no `model` for {}, and `[models]` has several: {}",
        list(agents.iter().copied()),
        list(models.map(String::as_str))
    );
    let at = if problems.layers().has(&table) { table } else { path(["models"]) };
    problems.values(&[(at, "which one?".to_owned())], message, help);
}

/// Reports an adapter name that two worker groups use.
fn two_groups(policy: &str, places: [(&ConfiguredSeat, &str); 2], problems: &mut Problems<'_>) {
    let [(member, worker), (other, held)] = places;
    let message = format!(
        "policy `{policy}` is on worker `{held}` for `{}`, but on `{worker}` for `{}`",
        other.seat, member.seat
    );
    let notes = [member, other].map(|member| {
        let worker = setting_path(problems, &member.seat, "worker_group", None);
        (
            setting_path(problems, &member.seat, "adapter", Some(worker)),
            format!("for `{}`", member.seat),
        )
    });
    let help = "an adapter sits on one base: give one of them another `adapter` name".to_owned();
    problems.values(&notes, message, help);
}

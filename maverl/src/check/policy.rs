//! Assignment of policies to seats and of worker groups to policies, and the optimizer of each policy.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value};

use super::Purpose;
use super::adapter;
use super::diagnostic::{Problems, did_you_mean, key, list, path, within};
use super::models::{self, Models};
use super::team::{self, Member};
use super::worker;
use crate::config::{Config, Dtype, KlIn, OptimConfig, Preset};
use crate::plan::activation_bytes;
use crate::plan::{
    AlgorithmPlan, LossPlan, OptimOptions, PolicyPlan, Sampling, SeatPlan, WorkerPlan,
};
use crate::trajectory::Seat;

/// Seats of one policy.
pub(super) struct Group<'m> {
    pub(super) worker: String,
    pub(super) model: String,
    pub(super) members: Vec<&'m Member>,
}

/// Returns seats, policies and worker groups, each sorted; `None` if a model is missing. Models have these precisions.
pub(super) fn assign(
    config: &Config,
    members: &[Member],
    (models, precisions): (&Models, &BTreeMap<String, Dtype>),
    purpose: Purpose,
    problems: &mut Problems<'_>,
) -> Option<(Vec<SeatPlan>, Vec<PolicyPlan>, Vec<WorkerPlan>)> {
    let groups = groups(config, members, problems)?;
    adapter::bases(config, &groups, problems);
    let workers = worker::plan(config, &groups, (models, precisions), problems)?;
    let (mut policies, mut seats) = (Vec::new(), Vec::new());
    for (name, group) in &groups {
        let optim = optim(config, name, group, problems);
        let opened = models.get(&group.model)?;
        let adapter = adapter::plan(config, name, group, opened, problems);
        let group_seats: Vec<SeatPlan> = group
            .members
            .iter()
            .map(|member| seat(config, member, group, policies.len()))
            .collect();
        let gradient_checkpointing = config.models[&group.model].gradient_checkpointing;
        let trained = group_seats.iter().any(|seat| seat.trained);
        let activation_bytes = trained.then(|| {
            let (shape, tokens) = (&opened.shape, config.runtime.micro_batch_tokens.get());
            let dtype = precisions[&group.model];
            activation_bytes(shape, tokens, tokens, gradient_checkpointing, dtype.into())
        });
        if samples(config, purpose) {
            models::fits(&group_seats, &group.model, &opened.shape, problems);
        }
        policies.push(PolicyPlan {
            name: name.clone(),
            worker: workers.iter().position(|worker| worker.name == group.worker)?,
            trained,
            gradient_checkpointing,
            activation_bytes,
            critic_parameters: 0,
            critic: critic(config, name, group, problems),
            reference: group_seats.iter().any(|seat| needs_reference(config, seat)),
            adapter,
            optim,
        });
        seats.extend(group_seats);
    }
    seats.sort_by(|a, b| a.seat.cmp(&b.seat));
    // Policies that are exchanged speak for the seats of each other.
    let exchanged = AlgorithmPlan::from(&config.algorithm).swap_every > 0;
    if exchanged && policies.iter().any(|p| p.reference) {
        policies.iter_mut().filter(|p| p.trained).for_each(|p| p.reference = true);
    }
    Some((seats, policies, workers))
}

/// Returns true if the loss of a seat has a reference, or its reward has the KL to one.
fn needs_reference(config: &Config, seat: &SeatPlan) -> bool {
    let (preset, kl) = (config.algorithm.name, seat.loss.kl_coef > 0.0);
    let free = config.algorithm.preference.reference_free == Some(true);
    let needed = match preset {
        Preset::Sft | Preset::Verifier => false,
        Preset::OnlineDpo => !free || (kl && seat.loss.kl_in == KlIn::Reward),
        _ if preset.compares_pairs() => !free,
        _ => kl,
    };
    seat.trained && needed
}

/// Returns true if replies are generated: not in supervised training without evaluation.
pub(super) fn samples(config: &Config, purpose: Purpose) -> bool {
    let (preset, eval) = (config.algorithm.name, config.eval.used(config.algorithm.name));
    purpose == Purpose::Eval || preset.generates() || eval.before_and_after || eval.every > 0
}

fn seat(config: &Config, member: &Member, group: &Group<'_>, policy: usize) -> SeatPlan {
    let sampling = member.config.sampling.clone().unwrap_or_default().over(&config.sampling);
    let loss = member.config.loss.clone().unwrap_or_default().over(&config.algorithm.loss);
    SeatPlan {
        seat: member.seat.clone(),
        policy,
        trained: trained(config, member, &group.model),
        sampling: Sampling::from(&sampling),
        loss: LossPlan::from(&loss),
        options: member.options.clone(),
    }
}

pub(super) fn trained(config: &Config, member: &Member, model: &str) -> bool {
    !config.models[model].frozen && member.config.frozen != Some(true)
}

/// Groups members by policy.
fn groups<'m>(
    config: &Config,
    members: &'m [Member],
    problems: &mut Problems<'_>,
) -> Option<BTreeMap<String, Group<'m>>> {
    let mut groups: BTreeMap<String, Group<'m>> = BTreeMap::new();
    let mut workers: BTreeMap<String, (String, &Member)> = BTreeMap::new();
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
                (source(problems, &member.seat, "frozen", None), "trained".to_owned()),
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
        let group = groups.entry(policy.clone()).or_insert_with(|| Group {
            worker: worker.clone(),
            model,
            members: Vec::new(),
        });
        if group.worker != worker {
            let places = [(member, worker.as_str()), (group.members[0], group.worker.as_str())];
            adapter::elsewhere(&policy, places, problems);
        }
        group.members.push(member);
    }
    undecided(config, &undecided_agents, problems);
    fine.then_some(groups)
}

/// Reports a worker group with two models.
fn other_model(worker: &str, found: [(&Member, &str); 2], problems: &mut Problems<'_>) {
    let [(member, model), (other, held)] = found;
    let message = format!(
        "worker `{worker}` is model `{held}` for `{}`, but model `{model}` for `{}`",
        other.seat, member.seat
    );
    let notes = [member, other].map(|member| {
        let at = source(problems, &member.seat, "worker_group", Some(path(["models", worker])));
        (at, format!("for `{}`", member.seat))
    });
    let help =
        "a worker group holds one model: give one of them another `worker_group` name".to_owned();
    problems.values(&notes, message, help);
}

/// Returns the name of a member's model.
fn model(config: &Config, member: &Member, problems: &mut Problems<'_>) -> Option<String> {
    let known = || config.models.keys().map(String::as_str);
    let at = source(problems, &member.seat, "model", None);
    match &member.config.model {
        Some(name) if config.models.contains_key(name) => Some(name.clone()),
        Some(name) => {
            let message =
                format!("`{}` is {name:?}, but `[models]` has only {}", key(&at), list(known()));
            let help = did_you_mean(name, known()).map(|close| format!("did you mean `{close}`?"));
            problems.value(&at, message, help);
            None
        }
        None if config.models.len() == 1 => known().next().map(str::to_owned),
        None => None,
    }
}

/// Reports agents whose model is ambiguous.
fn undecided(config: &Config, agents: &BTreeSet<&str>, problems: &mut Problems<'_>) {
    let known = || config.models.keys().map(String::as_str);
    let (Some(agent), Some(model)) = (agents.first(), known().next()) else { return };
    let table = path(["agents", agent]);
    let help = format!("write `model = \"{model}\"` in `[{}]`", key(&table));
    let message = format!(
        "no `model` for {}, and `[models]` has several: {}",
        list(agents.iter().copied()),
        list(known())
    );
    let at = if problems.layers().has(&table) { table } else { path(["models"]) };
    problems.values(&[(at, "which one?".to_owned())], message, help);
}

/// Returns the path of the key that determines a setting of a seat; the fallback, or the agent's own key if none is
/// set.
pub(super) fn source(
    problems: &Problems<'_>,
    seat: &Seat,
    name: &str,
    fallback: Option<Vec<String>>,
) -> Vec<String> {
    let own: Vec<Vec<String>> = team::tables(seat)
        .iter()
        .map(|table| name.split('.').fold(table.clone(), |table, part| within(&table, part)))
        .collect();
    let agent = own.last().cloned().unwrap_or_default();
    let given = own.into_iter().find(|path| problems.layers().has(path));
    given.or(fallback).unwrap_or(agent)
}

/// Returns the optimizer of a policy. Reports a key on which its trained members disagree.
fn optim(
    config: &Config,
    policy: &str,
    group: &Group<'_>,
    problems: &mut Problems<'_>,
) -> OptimOptions {
    let base = &config.models[&group.model].optim;
    let settled: Vec<(&Member, OptimOptions)> = group
        .members
        .iter()
        .filter(|member| trained(config, member, &group.model))
        .map(|member| {
            let own = member.config.optim.clone().unwrap_or_default();
            (*member, OptimOptions::from(&own.over(base)))
        })
        .collect();
    let Some((first, rest)) = settled.split_first() else { return OptimOptions::from(base) };
    let values = |optim: &OptimOptions| values(&OptimConfig::from(optim));
    for (member, optim) in rest {
        let found = [(first.0, values(&first.1)), (*member, values(optim))];
        agree(config, policy, group, "optim", &found, problems);
    }
    first.1
}

/// Returns the name of a policy's critic. Reports trained members that disagree.
fn critic(
    config: &Config,
    policy: &str,
    group: &Group<'_>,
    problems: &mut Problems<'_>,
) -> Option<String> {
    let mut trained = group.members.iter().filter(|m| trained(config, m, &group.model));
    let first = trained.next()?;
    let name = |member: &Member| member.config.critic.clone();
    if let Some(other) = trained.find(|member| name(member) != name(first)) {
        let found = [first, other].map(|m| (*m, name(m).map_or(Value::Null, Value::String)));
        let [(one, ours), (two, theirs)] = &found;
        let apart = |member: &Member| adapter::apart(config, &group.model, member);
        let found = [(*one, ours), (*two, theirs)];
        disagreement(policy, &group.model, "critic", found, apart, problems);
    }
    name(first)
}

/// Returns the values of a table by key.
pub(super) fn values(table: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(table) {
        Ok(Value::Object(values)) => values,
        _ => Map::new(),
    }
}

/// Reports every key of a table that two members of a policy set differently.
pub(super) fn agree(
    config: &Config,
    policy: &str,
    group: &Group<'_>,
    table: &str,
    found: &[(&Member, Map<String, Value>); 2],
    problems: &mut Problems<'_>,
) {
    let [(one, ours), (other, theirs)] = found;
    for (name, value) in ours.iter().filter(|(name, value)| theirs[*name] != **value) {
        let found = [(*one, value), (*other, &theirs[name])];
        let apart = |member: &Member| adapter::apart(config, &group.model, member);
        disagreement(policy, &group.model, &format!("{table}.{name}"), found, apart, problems);
    }
}

/// Formats a value as a user writes it: 1e-5, not 0.00001.
fn written(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => {
            number.as_f64().map_or_else(String::new, |number| format!("{number:?}"))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(written).collect::<Vec<_>>().join(", "))
        }
        value => value.to_string(),
    }
}

fn disagreement(
    policy: &str,
    model: &str,
    name: &str,
    found: [(&Member, &Value); 2],
    apart: impl Fn(&Member) -> String,
    problems: &mut Problems<'_>,
) {
    let parts = ["models", model].into_iter().chain(name.split('.')).map(str::to_owned);
    let shared: Vec<String> = parts.collect();
    let mut found = found.map(|(member, value)| {
        let at = source(problems, &member.seat, name, Some(shared.clone()));
        (at, member, value)
    });
    if found[0].0 == shared {
        found.swap(0, 1);
    }
    let [(_, one, a), (_, other, b)] = &found;
    let (a, b) = (written(a), written(b));
    let message = format!(
        "`{name}` is {a} for `{}` and {b} for `{}`, but both are policy `{policy}`",
        one.seat, other.seat
    );
    let help = format!("a policy has one value of it: write the same for both, or {}", apart(one));
    let notes = found.map(|(at, member, _)| (at, format!("for `{}`", member.seat)));
    problems.values(&notes, message, help);
}

/// Reports settings that cannot be used for training.
pub(super) fn trainable(config: &Config, seats: &[SeatPlan], problems: &mut Problems<'_>) {
    // Without agents and endpoints, the problem of the orchestra says what is missing.
    let is_empty = seats.is_empty() && config.endpoints.is_empty();
    if !is_empty && !seats.iter().any(|seat| seat.trained) {
        let (message, help) = match seats.is_empty() {
            true => (
                "nothing is trained: every agent is an endpoint's",
                "remove `endpoint` from one of them; `maverl eval` evaluates a team without training it",
            ),
            false => (
                "nothing is trained: every agent, or its model, is frozen",
                "remove `frozen = true` from one of them",
            ),
        };
        problems.whole(message.to_owned(), help.to_owned());
    }
    if !config.algorithm.name.generates() {
        return;
    }
    for seat in seats.iter().filter(|seat| seat.trained) {
        let s = &seat.sampling;
        if s.temperature == 0.0 {
            let message =
                format!("`{}` is trained, but its replies are greedy (temperature 0)", seat.seat);
            let help = "training needs replies that differ; `eval.temperature = 0` makes evaluation greedy";
            let at = sampling_key(problems, seat, "temperature");
            problems.value(&at, message, help.to_owned());
        }
        let repeats = s.repetition_penalty != 1.0;
        let filters = [
            ("top_k", s.top_k > 0),
            ("top_p", s.top_p < 1.0),
            ("min_p", s.min_p > 0.0),
            ("repetition_penalty", repeats),
        ];
        for (name, _) in filters.iter().filter(|(_, on)| *on) {
            let message = format!(
                "`{name}` is set for `{}`, which is trained with the ratio of unfiltered probabilities",
                seat.seat
            );
            let help = "remove it, or freeze the agent: log-probabilities of filtered samples would be wrong";
            let at = sampling_key(problems, seat, name);
            problems.value(&at, message, help.to_owned());
        }
    }
}

/// Returns the path of the key that sets how a seat samples.
pub(super) fn sampling_key(problems: &Problems<'_>, seat: &SeatPlan, name: &str) -> Vec<String> {
    let shared = path(["sampling", name]);
    source(problems, &seat.seat, &format!("sampling.{name}"), Some(shared))
}

//! Parts of the reward: functions that are not declared, servers, Python files, judges, verifiers and prices that cannot
//! score.

use std::collections::BTreeSet;

use crate::check::choice::ChosenOrchestra;
use crate::check::files::SeenQuestions;
use crate::config::source::{Problems, key, path, path_within, suggestion};
use crate::config::{Config, RewardConfig, RewardUnit, RewardUsageConfig};
use crate::plan::{RewardPlan, RewardSource};
use crate::registry::Registry;
use crate::task::{TaskList, question_key};
use crate::trajectory::Seat;

/// Returns the parts of the reward. Reports those that cannot be.
pub(crate) fn reward_parts(
    config: &Config,
    (seen, tasks): (&SeenQuestions<'_>, &TaskList),
    flow: Option<&ChosenOrchestra>,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> Vec<RewardPlan> {
    if let Some(flow) = flow {
        seats(config, &flow.members, problems);
    }
    let mut plans = Vec::new();
    for (name, reward) in &config.rewards {
        let table = path(["rewards", name]);
        let declared = registry.rewards.contains_key(name.as_str());
        let Some(source) = reward_source((name, reward), &table, problems) else { continue };
        match &source {
            RewardSource::Function | RewardSource::Usage(_) => {}
            RewardSource::Server(server) => {
                unit(server.of, &server.seats, &path_within(&table, "server"), problems);
            }
            RewardSource::Python(python) => {
                let table = path_within(&table, "python");
                unit(python.of, &python.seats, &table, problems);
                check_sent(&python.send, tasks, &path_within(&table, "send"), problems);
            }
            RewardSource::Judge(judge) => {
                let table = path_within(&table, "judge");
                unit(judge.of, &judge.seats, &table, problems);
                check_sent(&judge.send, tasks, &path_within(&table, "send"), problems);
            }
            RewardSource::Verifier(verifier) => {
                let table = path_within(&table, "verifier");
                unit(verifier.of, &verifier.seats, &table, problems);
                if let Some(seen) = seen.get(name).filter(|_| !verifier.allow_seen) {
                    check_seen(seen, tasks, &path_within(&table, "path"), problems);
                }
            }
        }
        if let RewardSource::Usage(usage) = &source {
            priced(usage, &path_within(&table, "usage"), problems);
        }
        match (&source, declared) {
            (RewardSource::Function, false) => {
                let message = format!("no reward function is called `{name}`");
                let help = suggestion(name, registry.rewards.keys().copied());
                problems.key(&table, message, help);
            }
            (source, true) if *source != RewardSource::Function => {
                let message = format!("`{name}` is the name of a declared reward function");
                problems.key(&table, message, "give the part another name".to_owned());
            }
            _ => {}
        }
        plans.push(RewardPlan { name: name.clone(), weight: reward.weight, source });
    }
    plans
}

/// Reports prices that are all 0.
fn priced(usage: &RewardUsageConfig, table: &[String], problems: &mut Problems<'_>) {
    if usage.token == 0.0 && usage.turn == 0.0 && usage.call == 0.0 {
        let message = format!("`{}` has no price: its values are all 0", key(table));
        problems.key(table, message, "set `token`, `turn` or `call`".to_owned());
    }
}

/// Returns the origin of the values of a part. Reports a part with two.
fn reward_source(
    (name, reward): (&str, &RewardConfig),
    table: &[String],
    problems: &mut Problems<'_>,
) -> Option<RewardSource> {
    let server = reward.server.clone().map(RewardSource::Server);
    let python = reward.python.clone().map(RewardSource::Python);
    let judge = reward.judge.clone().map(RewardSource::Judge);
    let verifier = reward.verifier.clone().map(RewardSource::Verifier);
    let usage = reward.usage.clone().map(RewardSource::Usage);
    let given = [
        ("server", server),
        ("python", python),
        ("judge", judge),
        ("verifier", verifier),
        ("usage", usage),
    ];
    let given = given.into_iter().filter_map(|(key, source)| Some((key, source?)));
    let (keys, sources): (Vec<&str>, Vec<RewardSource>) = given.unzip();
    if let [first, second, ..] = keys[..] {
        let message = format!("reward `{name}` has a `{first}` and a `{second}`");
        problems.key(table, message, "remove one of the two".to_owned());
        return None;
    }
    Some(sources.into_iter().next().unwrap_or(RewardSource::Function))
}

/// Reports keys that no task has: a function would get nothing in their place.
fn check_sent(send: &[String], tasks: &TaskList, place: &[String], problems: &mut Problems<'_>) {
    let known = tasks.keys();
    for key in send.iter().filter(|key| !tasks.is_empty() && !known.contains(*key)) {
        let help = suggestion(key, known.iter().map(String::as_str));
        problems.value(place, format!("no task has the key `{key}`"), help);
    }
}

/// Reports a verifier that was trained on tasks of the run.
fn check_seen(
    seen: &BTreeSet<String>,
    tasks: &TaskList,
    place: &[String],
    problems: &mut Problems<'_>,
) {
    let named = tasks.names().zip(tasks.questions());
    let known = named.filter(|(_, question)| seen.contains(&question_key(question)));
    let known: Vec<&str> = known.map(|((id, _), _)| id).collect();
    if let Some(first) = known.first() {
        let n = known.len();
        let message = format!("the verifier was trained on {n} of the tasks, such as `{first}`");
        let help = "it knows their labels: use other tasks, or set `allow_seen = true`".to_owned();
        problems.value(place, message, help);
    }
}

fn unit(of: RewardUnit, seats: &[String], table: &[String], problems: &mut Problems<'_>) {
    if of == RewardUnit::Answer && !seats.is_empty() {
        let message = "`seats` has no effect: the answer is that of the team".to_owned();
        let help = "remove it, or set `of = \"turn\"`".to_owned();
        problems.value(&path_within(table, "seats"), message, help);
    }
}

/// Reports seats that are not in the team.
fn seats(config: &Config, members: &BTreeSet<Seat>, problems: &mut Problems<'_>) {
    let seats = members.iter().flat_map(|seat| [seat.to_string(), seat.agent.clone()]);
    let known: BTreeSet<String> = seats.collect();
    for (name, reward) in &config.rewards {
        let table = path(["rewards", name]);
        let server = reward.server.iter().map(|server| ("server", &server.seats));
        let python = reward.python.iter().map(|python| ("python", &python.seats));
        let verifier = reward.verifier.iter().map(|verifier| ("verifier", &verifier.seats));
        let judge = reward.judge.iter().map(|judge| ("judge", &judge.seats));
        let usage = reward.usage.iter().map(|usage| ("usage", &usage.seats));
        for (key, seats) in server.chain(python).chain(judge).chain(verifier).chain(usage) {
            for seat in seats.iter().filter(|seat| !known.contains(*seat)) {
                let message = format!("nobody of the team sits at `{seat}`");
                let help = suggestion(seat, known.iter().map(String::as_str));
                problems.value(&path_within(&path_within(&table, key), "seats"), message, help);
            }
        }
    }
}

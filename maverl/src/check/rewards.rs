//! Parts of the reward: functions that are not declared, servers and verifiers that cannot score.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use super::choice::Orchestra;
use super::data::Loaded;
use super::diagnostic::{Problems, path, suggestion, within};
use super::missing::{self, Wanted};
use crate::client::lacks_https;
use crate::config::{
    Config, RewardProtocol, RewardServerConfig, RewardUnit, RewardVerifierConfig, STAGE,
};
use crate::data;
use crate::net::RewardHead;
use crate::plan::{RewardPlan, RewardSource};
use crate::registry::Registry;
use crate::task::{Task, question_key};
use crate::trajectory::Seat;

/// Returns the parts of the reward. Reports those that cannot be.
pub(super) fn check(
    config: &Config,
    (base, loaded): (&Path, &Loaded),
    flow: Option<&Orchestra>,
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
        let source = match (&reward.server, &reward.verifier) {
            (Some(_), Some(_)) => {
                let message = format!("reward `{name}` has a `server` and a `verifier`");
                problems.key(&table, message, "remove one of the two".to_owned());
                continue;
            }
            (None, None) => RewardSource::Function,
            (Some(server), None) => {
                self::server(server, &within(&table, "server"), problems);
                RewardSource::Server(server.clone())
            }
            (None, Some(verifier)) => {
                self::verifier(
                    verifier,
                    (base, &loaded.tasks),
                    &within(&table, "verifier"),
                    problems,
                );
                RewardSource::Verifier(verifier.clone())
            }
        };
        match (&source, declared) {
            (RewardSource::Function, false) => {
                let message = format!("no reward function is called `{name}`");
                let help = suggestion(name, registry.rewards.keys().copied());
                problems.key(&table, message, help);
            }
            (RewardSource::Server(_) | RewardSource::Verifier(_), true) => {
                let message = format!("`{name}` is the name of a declared reward function");
                problems.key(&table, message, "give the part another name".to_owned());
            }
            _ => {}
        }
        plans.push(RewardPlan { name: name.clone(), weight: reward.weight, source });
    }
    plans
}

fn server(server: &RewardServerConfig, table: &[String], problems: &mut Problems<'_>) {
    let RewardServerConfig { url, .. } = server;
    if !(url.starts_with("http://") || url.starts_with("https://")) {
        let message =
            format!("`url` of a server of rewards is {url:?}; it begins with http:// or https://");
        problems.value(&within(table, "url"), message, None);
    }
    if let Some(reason) = lacks_https(url) {
        let message = format!("`url` of a server of rewards {reason}");
        problems.value(&within(table, "url"), message, None);
    }
    let unset = |name: &&String| std::env::var_os(name).is_none_or(|key| key.is_empty());
    if let Some(variable) = server.key_env.as_ref().filter(unset) {
        let message = format!("the environment variable `{variable}` is not set, or empty");
        problems.value(&within(table, "key_env"), message, None);
    }
    let most = match server.protocol {
        RewardProtocol::Score => usize::MAX,
        RewardProtocol::Rm => 1,
        RewardProtocol::Predict | RewardProtocol::GetReward => 0,
    };
    if server.send.len() > most {
        let message = match most {
            0 => "`send` has no effect: the protocol carries no data of tasks",
            _ => "`send` names several keys, and the protocol carries one, as `label`",
        };
        let help = "set `protocol = \"score\"`, or name fewer keys".to_owned();
        problems.value(&within(table, "send"), message.to_owned(), help);
    }
    unit(server.of, &server.seats, table, problems);
}

fn verifier(
    verifier: &RewardVerifierConfig,
    (base, tasks): (&Path, &[Task]),
    table: &[String],
    problems: &mut Problems<'_>,
) {
    unit(verifier.of, &verifier.seats, table, problems);
    let place = within(table, "path");
    let seen = match verifier.path.strip_prefix(STAGE) {
        Some(stage) => of_stage(stage, &place, problems),
        None => of_directory(Path::new(&verifier.path), base, &place, problems),
    };
    let Some(seen) = seen else { return };
    let known = tasks.iter().filter(|task| seen.contains(&question_key(&task.question)));
    let known: Vec<&str> = known.map(|task| task.id.as_str()).collect();
    if let Some(first) = known.first().filter(|_| !verifier.allow_seen) {
        let n = known.len();
        let message = format!("the verifier was trained on {n} of the tasks, such as `{first}`");
        let help = "it knows their labels: use other tasks, or set `allow_seen = true`".to_owned();
        problems.value(&place, message, help);
    }
}

/// Returns the questions that the verifier of an earlier stage is trained on. Reports a stage that trains none.
fn of_stage<'l>(
    stage: &str,
    place: &[String],
    problems: &mut Problems<'l>,
) -> Option<Cow<'l, BTreeSet<String>>> {
    let verifiers = problems.layers().verifiers();
    let found = verifiers.get(stage).map(Cow::Borrowed);
    if found.is_none() {
        let message = format!("no earlier stage `{stage}` trains a verifier");
        let known = verifiers.keys().map(String::as_str);
        let help = match verifiers.is_empty() {
            true => "`stage:NAME` is the verifier that the earlier stage `NAME.toml` of a file of stages trains; anywhere \
                     else, write the directory that `maverl export --verifier` wrote"
                .to_owned(),
            false => suggestion(stage, known),
        };
        problems.value(place, message, help);
    }
    found
}

/// Returns the questions that the verifier in a directory was trained on. Reports a directory that has no verifier.
fn of_directory(
    given: &Path,
    base: &Path,
    place: &[String],
    problems: &mut Problems<'_>,
) -> Option<Cow<'static, BTreeSet<String>>> {
    let written =
        || "`maverl export --run RUN --verifier --out DIR` writes such a directory".to_owned();
    if !base.join(given).exists() {
        let message = missing::message(given, base, Wanted::Directory);
        let help = missing::help(given, base, Wanted::Directory).unwrap_or_else(written);
        problems.value(place, message, help);
        return None;
    }
    if let Err(error) = RewardHead::read(&base.join(given)) {
        problems.value(place, error.to_string(), written());
    }
    match data::seen(&base.join(given)) {
        Ok(seen) => Some(Cow::Owned(seen)),
        Err(error) => {
            problems.value(place, error, None);
            None
        }
    }
}

fn unit(of: RewardUnit, seats: &[String], table: &[String], problems: &mut Problems<'_>) {
    if of == RewardUnit::Answer && !seats.is_empty() {
        let message = "`seats` has no effect: the answer is that of the team".to_owned();
        let help = "remove it, or set `of = \"turn\"`".to_owned();
        problems.value(&within(table, "seats"), message, help);
    }
}

/// Reports seats that are not in the team.
fn seats(config: &Config, members: &BTreeSet<Seat>, problems: &mut Problems<'_>) {
    let seats = members.iter().flat_map(|seat| [seat.to_string(), seat.agent.clone()]);
    let known: BTreeSet<String> = seats.collect();
    for (name, reward) in &config.rewards {
        let table = path(["rewards", name]);
        let server = reward.server.iter().map(|server| ("server", &server.seats));
        let verifier = reward.verifier.iter().map(|verifier| ("verifier", &verifier.seats));
        for (key, seats) in server.chain(verifier) {
            for seat in seats.iter().filter(|seat| !known.contains(*seat)) {
                let message = format!("nobody of the team sits at `{seat}`");
                let help = suggestion(seat, known.iter().map(String::as_str));
                problems.value(&within(&within(&table, key), "seats"), message, help);
            }
        }
    }
}

//! Upper bounds of whole numbers, beyond any machine's memory or time. They are checked first, because allocations grow
//! with them.

use super::diagnostic::{Problems, key, path, within};
use crate::config::{AgentConfig, Config, CriticConfig, SamplingConfig};
use crate::orchestra::MOST_SEATS;
use crate::plan::Chosen;
use crate::registry::DynOrchestra;
use crate::trajectory::Seat;

/// Maximum number of episodes of a step, and of an evaluation.
const EPISODES: u64 = 1 << 20;
/// Maximum size of a group.
const GROUP: u64 = 1 << 16;
/// Maximum number of requests, passes and minibatches.
const MANY: u64 = 1 << 20;
/// Maximum number of tokens of a reply.
const REPLY: u64 = 1 << 24;
/// Maximum number of tokens of a batch, and of MiB.
const LARGE: u64 = 1 << 30;
/// Maximum number of hidden units of a mixing network.
const WIDTH: u64 = 1 << 12;

/// Reports every count that is too large.
pub(super) fn check(config: &Config, problems: &mut Problems<'_>) {
    let task = path(["task"]);
    most(problems, &task, "tasks_per_step", Some(config.task.tasks_per_step.get() as u64), MANY);
    most(problems, &task, "group_size", Some(config.task.group_size.get().into()), GROUP);
    most(problems, &task, "max_mib", Some(config.task.max_mib.get()), LARGE);
    most(problems, &task, "max_row_mib", Some(config.task.max_row_mib.get()), LARGE);
    let samples = u64::from(config.eval.samples.get());
    most(problems, &path(["eval"]), "samples", Some(samples), GROUP);
    sampling(&config.sampling, &path(["sampling"]), problems);
    for (name, config) in &config.agents {
        agent(config, &path(["agents", name]), problems);
    }
    for (name, endpoint) in &config.endpoints {
        let (table, requests) = (path(["endpoints", name]), endpoint.max_requests.get() as u64);
        most(problems, &table, "max_requests", Some(requests), MANY);
    }
    let (algorithm, table) = (&config.algorithm, path(["algorithm"]));
    let count = |count: Option<std::num::NonZeroUsize>| count.map(|count| count.get() as u64);
    most(problems, &table, "minibatches", count(algorithm.minibatches), MANY);
    most(problems, &table, "epochs", count(algorithm.epochs), MANY);
    critic(&algorithm.critic, &within(&table, "critic"), problems);
    let (runtime, table) = (&config.runtime, path(["runtime"]));
    for (name, count, bound) in [
        ("max_requests", runtime.max_requests, MANY),
        ("prefill_tokens", runtime.prefill_tokens, LARGE),
        ("micro_batch_tokens", runtime.micro_batch_tokens, LARGE),
        ("kv_mib", runtime.kv_mib, LARGE),
    ] {
        most(problems, &table, name, Some(count.get() as u64), bound);
    }
    let (tasks, group) = (&config.task.tasks_per_step, config.task.group_size);
    episodes(
        problems,
        &["tasks_per_step", "group_size"].map(|name| within(&task, name)),
        [tasks.get() as u64, group.get().into()],
        "a step",
    );
}

/// Reports an evaluation of too many episodes.
pub(super) fn evaluation(config: &Config, tasks: usize, problems: &mut Problems<'_>) {
    let keys = [path(["eval", "tasks"]), path(["eval", "samples"])];
    episodes(problems, &keys, [tasks as u64, config.eval.samples.get().into()], "an evaluation");
}

fn episodes(
    problems: &mut Problems<'_>,
    keys: &[Vec<String>; 2],
    [tasks, each]: [u64; 2],
    what: &str,
) {
    let all = tasks.saturating_mul(each);
    if all <= EPISODES || keys.iter().any(|key| problems.reported(key)) {
        return;
    }
    let message = format!(
        "{what} would play {tasks} x {each} = {all} episodes; at most {EPISODES} are played"
    );
    let help = format!("lower `{}` or `{}`", key(&keys[0]), key(&keys[1]));
    problems.value(&keys[1], message, help);
}

fn agent(config: &AgentConfig, table: &[String], problems: &mut Problems<'_>) {
    if let Some(config) = &config.sampling {
        sampling(config, &within(table, "sampling"), problems);
    }
    for (number, config) in &config.seats {
        agent(config, &within(&within(table, "seats"), &number.to_string()), problems);
    }
}

fn sampling(config: &SamplingConfig, table: &[String], problems: &mut Problems<'_>) {
    let tokens = config.max_tokens.map(|tokens| tokens.get() as u64);
    most(problems, table, "max_tokens", tokens, REPLY);
}

fn critic(config: &CriticConfig, table: &[String], problems: &mut Problems<'_>) {
    let width = config.mixer_width.map(|width| width.get() as u64);
    most(problems, table, "mixer_width", width, WIDTH);
}

fn most(problems: &mut Problems<'_>, table: &[String], name: &str, value: Option<u64>, bound: u64) {
    if let Some(value) = value.filter(|&value| value > bound) {
        let path = within(table, name);
        let message =
            format!("`{}` is {value}; expected a whole number from 1 to {bound}", key(&path));
        problems.value(&path, message, None);
    }
}

/// Returns the seats of an orchestra; `None` if it has more of one agent than allowed.
pub(super) fn seats(
    Chosen { name, options }: &Chosen,
    orchestra: &dyn DynOrchestra,
    problems: &mut Problems<'_>,
) -> Option<Vec<Seat>> {
    let members = orchestra.members();
    let too_many = |seat: &&Seat| seat.index == Some(MOST_SEATS);
    let Some(Seat { agent, .. }) = members.iter().find(too_many) else { return Some(members) };
    // The option with the number is not known by name: it is the one that is large enough.
    let options = options.as_object().into_iter().flatten();
    let large = |value: &serde_json::Value| value.as_u64().filter(|n| *n > u64::from(MOST_SEATS));
    let (path, found) = match options.filter_map(|(name, value)| Some((name, large(value)?))).next()
    {
        Some((option, n)) => {
            let path = path(["orchestra", option]);
            let found = format!("`{}` is {n}: ", key(&path));
            (path, found)
        }
        None => (path(["orchestra"]), String::new()),
    };
    let message =
        format!("{found}orchestra `{name}` has more than {MOST_SEATS} seats of `{agent}`");
    let help = format!("write at most {MOST_SEATS}");
    problems.value(&path, message, help);
    None
}

//! Products of numbers that are beyond any machine's memory or time. They are checked first, because allocations grow with
//! them.

use super::diagnostic::{Problems, key, path, within};
use crate::config::Config;
use crate::orchestra::DynOrchestra;
use crate::orchestra::MOST_SEATS;
use crate::plan::Chosen;
use crate::trajectory::Seat;

/// Maximum number of episodes of a step, and of an evaluation.
const EPISODES: u64 = 1 << 20;

/// Reports a step of too many episodes.
pub(super) fn check(config: &Config, problems: &mut Problems<'_>) {
    let task = path(["task"]);
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

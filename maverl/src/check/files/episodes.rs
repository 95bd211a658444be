//! Numbers of episodes that are beyond any machine's memory or time. They are checked first, because allocations grow with
//! them.

use crate::config::Config;
use crate::config::source::{Problems, key, path, path_within};

/// Maximum number of episodes of a step, and of an evaluation.
const EPISODES: u64 = 1 << 20;

/// Reports a step of too many episodes.
pub(crate) fn check_step(config: &Config, problems: &mut Problems<'_>) {
    let task = path(["task"]);
    let (tasks, group) = (&config.task.tasks_per_step, config.task.group_size);
    episodes(
        problems,
        &["tasks_per_step", "group_size"].map(|name| path_within(&task, name)),
        [tasks.get() as u64, group.get().into()],
        "a step",
    );
}

/// Reports an evaluation of too many episodes.
pub(crate) fn check_evaluation(config: &Config, tasks: usize, problems: &mut Problems<'_>) {
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
    if all <= EPISODES || keys.iter().any(|key| problems.is_reported(key)) {
        return;
    }
    let message = format!(
        "{what} would play {tasks} x {each} = {all} episodes; at most {EPISODES} are played"
    );
    let help = format!("lower `{}` or `{}`", key(&keys[0]), key(&keys[1]));
    problems.value(&keys[1], message, help);
}

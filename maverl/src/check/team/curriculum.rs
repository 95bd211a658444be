//! Rules of a curriculum by solve rates.

use crate::config::source::{Problems, path, path_within};
use crate::config::{Config, Preset};

/// Reports pools that are in no order or never drawn from, and settings that a curriculum excludes.
pub(super) fn check_curriculum(config: &Config, preset: Preset, problems: &mut Problems<'_>) {
    let curriculum = &config.task.curriculum;
    if !curriculum.is_used() {
        return;
    }
    let table = path(["task", "curriculum"]);
    let at = path_within(&table, "pools");
    let mut found = Vec::new();
    let ends: Vec<f64> = curriculum.pools.iter().map(|pool| pool.up_to).collect();
    let rises = ends.windows(2).all(|pair| pair[0] < pair[1]);
    if !rises || ends.first().is_some_and(|first| *first < 0.0) || ends.last() != Some(&1.0) {
        found.push((
            format!("`task.curriculum.pools` has `up_to` {ends:?}"),
            "solve rates are from 0 to 1: write rising numbers, the last one 1.0",
        ));
    }
    let weights: Vec<f64> = curriculum.pools.iter().map(|pool| pool.weight).collect();
    if weights.iter().any(|weight| !(weight.is_finite() && *weight >= 0.0)) {
        found.push((
            format!("`task.curriculum.pools` has `weight` {weights:?}"),
            "a weight is 0 or more",
        ));
    } else if weights.iter().all(|weight| *weight == 0.0) {
        found.push((
            "every pool of `task.curriculum.pools` has weight 0".to_owned(),
            "no task would be played twice: give a pool a weight",
        ));
    }
    if config.task.harder_every > 0 {
        found.push((
            format!(
                "`task.curriculum` has pools, and `task.harder_every` is {}",
                config.task.harder_every
            ),
            "both decide which tasks are played: remove one of them",
        ));
    }
    if preset.is_supervised() {
        found.push((
            format!("`task.curriculum` has pools, and `algorithm.name` is {:?}", preset.name()),
            "rows of a file are not solved: remove `task.curriculum`",
        ));
    }
    for (message, help) in found {
        problems.conflict(&at, message, help.to_owned());
    }
}

/// Returns a warning about tasks that are left out for good.
pub(super) fn curriculum_doubt(config: &Config) -> Option<String> {
    let pools = config.task.curriculum.pools.iter();
    let ends: Vec<String> =
        pools.filter(|pool| pool.weight == 0.0).map(|pool| pool.up_to.to_string()).collect();
    (!ends.is_empty()).then(|| {
        format!(
            "tasks in the pools of `task.curriculum` with `up_to` {} have weight 0: once there, a task is never played again",
            ends.join(", ")
        )
    })
}

//! Groups of a step: what was compared with what, and the arithmetic of each advantage.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::{Value, json};

use super::api::{self, Answer};
use super::episode::sample_json;
use super::http::Response;
use super::run::Run;
use crate::run_dir::disk::{entries, name, step_of};
use crate::run_dir::{GroupRecord, StepSamples, TRAIN};

/// Number of characters of a reply in a line.
const REPLY: usize = 200;
/// Maximum number of steps whose groups are compared, the newest ones.
const STEPS: usize = 200;
/// Number of groups of all steps that are listed.
const LARGEST: usize = 200;

fn recorded(run: &Run, step: u64) -> Result<StepSamples, Response> {
    let missing = || {
        Response::refusal(
            404,
            "the run has no record of the samples of this step; runs of newer versions have",
        )
    };
    api::samples(run, step)?.ok_or_else(missing)
}

/// Returns a line for each group: its samples, their mean reward, and the sum of their absolute advantages.
fn lines(step: u64, all: &StepSamples) -> Vec<(f64, Value)> {
    let mut sums: BTreeMap<usize, (usize, f64, f64)> = BTreeMap::new();
    for sample in &all.samples {
        if let Some(group) = sample.group {
            let (n, rewards, advantages) = sums.entry(group).or_default();
            *n += 1;
            *rewards += sample.reward;
            *advantages += sample.advantage.abs();
        }
    }
    let whole: f64 = sums.values().map(|(_, _, advantages)| advantages).sum();
    let line = |group: &GroupRecord| {
        let (n, rewards, advantages) = sums.get(&group.id).copied().unwrap_or_default();
        let share = if whole > 0.0 { advantages / whole } else { 0.0 };
        let line = object!({
            "step": step, "group": group, "samples": n, "reward": rewards / n.max(1) as f64,
            "advantages": advantages, "share": share,
        });
        (advantages, line)
    };
    all.groups.iter().map(line).collect()
}

/// Lists the groups of a step.
pub(super) fn list(run: &Run, step: u64) -> Answer {
    let all = recorded(run, step)?;
    let groups: Vec<Value> = lines(step, &all).into_iter().map(|(_, line)| line).collect();
    api::bounded(&object!({
        "step": step, "estimator": all.estimator, "groups": groups, "samples": all.samples.len(),
    }))
}

/// Lists the groups of all steps with the largest sums of absolute advantages.
pub(super) fn largest(run: &Run) -> Answer {
    let files = entries(&run.path().join("samples")).unwrap_or_default();
    let of_step = |path: &std::path::PathBuf| name(path).ends_with(".jsonl.zst");
    let mut steps: Vec<u64> =
        files.iter().filter(|path| of_step(path)).filter_map(|path| step_of(path)).collect();
    steps.sort_unstable();
    let read = &steps[steps.len().saturating_sub(STEPS)..];
    let (mut found, mut samples, mut estimator) = (Vec::new(), 0, Value::Null);
    for step in read {
        let all = recorded(run, *step)?;
        found.extend(lines(*step, &all));
        found.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        found.truncate(LARGEST);
        samples += all.samples.len();
        estimator = json!(all.estimator);
    }
    let groups: Vec<Value> = found.into_iter().map(|(_, line)| line).collect();
    api::bounded(&object!({
        "step": Value::Null, "steps": [read.first(), read.last()], "of": steps.len(),
        "estimator": estimator, "groups": groups, "samples": samples,
    }))
}

/// Describes one group with its samples.
pub(super) fn answer(run: &Run, step: u64, id: usize) -> Answer {
    let all = recorded(run, step)?;
    let group = all.groups.get(id);
    let group = group.ok_or_else(|| Response::refusal(404, "the step has no such group"))?;
    let mut episodes = BTreeMap::new();
    let mut lines = Vec::new();
    for sample in all.of_group(id) {
        let (row, episode) = match episodes.entry(sample.episode) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => {
                let (_, row, episode) = api::stored(run, TRAIN, step, sample.episode as u64)?;
                place.insert((row, episode))
            }
        };
        let turn = episode.turns.get(sample.turn);
        let wrong =
            || Response::refusal(500, "a sample names a turn that its episode does not have");
        let turn = turn.ok_or_else(wrong)?;
        let parts = episode.rewards.iter().filter(|part| match &part.of {
            crate::trajectory::RewardOf::Episode => true,
            crate::trajectory::RewardOf::Seat(of) => *of == turn.seat,
            crate::trajectory::RewardOf::Turn(of) => *of == sample.turn,
        });
        let parts = parts.map(|part| object!({ "name": part.name, "value": part.value }));
        lines.push(object!({
            "sample": sample_json(&all, sample),
            "deviation": sample.deviation_group.and_then(|id| all.deviation_groups.get(id)),
            "path": turn.path.0,
            "seat": turn.seat,
            "score": episode.score().map(|score| score.reward),
            "parts": parts.collect::<Vec<_>>(),
            "reply": turn.reply.chars().take(REPLY).collect::<String>(),
            "cut": turn.reply.chars().nth(REPLY).is_some(),
            "error": turn.error,
            "index": row["index"],
            "answer": row["answer"],
            "solved": row["solved"],
        }));
    }
    let question = episodes.values().next().map(|(_, episode)| episode.task.question.clone());
    api::bounded(&object!({
        "step": step,
        "estimator": all.estimator,
        "group": group,
        "groups": all.groups.len(),
        "question": question,
        "samples": lines,
    }))
}

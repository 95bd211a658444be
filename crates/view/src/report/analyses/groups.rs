//! Groups of a step: what was compared with what, and the arithmetic of each advantage.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use maverl::run_dir::disk::{entries, name, step_of};
use maverl::run_dir::{StepSamples, TRAIN};
use maverl::trajectory::RewardOf;
use serde_json::{Value, json};

use super::divergence::TurnKey;
use super::episode::sample_json;
use super::weights::{GroupWeights, ReplySums};
use crate::compact::sort_by;
use crate::json::value;
use crate::report::problem::ReportProblem;
use crate::report::rows::episodes::{StoredEpisode, read_stored};
use crate::report::rows::run::ReportedRun;

/// Number of characters of a reply in a line.
const REPLY: usize = 200;
/// Maximum number of steps whose groups are compared, the newest ones.
const STEPS: usize = 200;
/// Maximum size of the files of episodes of these steps in bytes. Their replies are read.
const BYTES: u64 = 128 << 20;
/// Number of groups of all steps that are listed.
const LARGEST: usize = 200;

/// Returns the samples of a step.
fn recorded_samples(run: &ReportedRun, step: u64) -> Result<StepSamples, ReportProblem> {
    let reason = "the run has no record of the samples of this step; runs of newer versions have";
    run.files.read_samples(step)?.ok_or_else(|| ReportProblem::missing(reason))
}

/// A line of a list with what it is ranked by: the weight, and its part of that of the step. Without weights, the sum of
/// absolute advantages.
type RankedLine = ((f64, f64), Value);

/// Samples of a group or of a task.
#[derive(Clone, Copy)]
struct SampleSum {
    samples: usize,
    rewards: f64,
    /// Sum of absolute advantages.
    advantages: f64,
    /// Weight in the update; `None` if the replies cannot be read.
    weight: Option<f64>,
}

impl SampleSum {
    fn new(weight: Option<f64>) -> Self {
        Self { samples: 0, rewards: 0.0, advantages: 0.0, weight }
    }

    fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.rewards += other.rewards;
        self.advantages += other.advantages;
        self.weight = self.weight.zip(other.weight).map(|(a, b)| a + b);
    }

    /// Returns the line of the samples of a group or a task, with its key.
    fn ranked_line(
        &self,
        step: u64,
        whole: Option<f64>,
        (key, of): (&str, Value),
        size: usize,
    ) -> RankedLine {
        let Self { samples, rewards, advantages, weight } = *self;
        // Advantages that cancel leave rounding errors.
        let share = weight
            .zip(whole)
            .map(|(weight, whole)| if whole > 1e-9 { weight / whole } else { 0.0 });
        let line = object!({
            "step": step, key: of, "size": size, "samples": samples, "advantages": advantages,
            "weight": weight, "share": share, "reward": rewards / samples.max(1) as f64,
        });
        ((weight.unwrap_or(advantages), share.unwrap_or(0.0)), line)
    }
}

/// Returns a line for each group of a step, and one for each task: its groups, which are those of its agents, added up.
fn ranked_lines(
    run: &ReportedRun,
    weights: &GroupWeights,
    step: u64,
    all: &StepSamples,
) -> [Vec<RankedLine>; 2] {
    let weights = weights.of_step(run, step, all);
    let weights = (0..all.groups.len())
        .map(|id| weights.as_ref().and_then(|weights| weights.get(id).copied()));
    let mut sums: Vec<SampleSum> = weights.map(SampleSum::new).collect();
    for sample in &all.samples {
        if let Some(sum) = sample.group.and_then(|group| sums.get_mut(group)) {
            sum.samples += 1;
            sum.rewards += sample.reward;
            sum.advantages += sample.loss_advantage().abs();
        }
    }
    let whole: Option<f64> = sums.iter().map(|sum| sum.weight).sum();
    let mut tasks: BTreeMap<(&str, &str), (SampleSum, Vec<usize>)> = BTreeMap::new();
    for (group, sum) in all.groups.iter().zip(&sums) {
        let (of_task, ids) = tasks
            .entry((&group.source, &group.task))
            .or_insert_with(|| (SampleSum::new(Some(0.0)), Vec::new()));
        of_task.add(sum);
        ids.push(group.id);
    }
    let groups = all.groups.iter().zip(&sums);
    let groups =
        groups.map(|(of, sum)| sum.ranked_line(step, whole, ("group", value(of)), of.size));
    let tasks = tasks.iter().map(|((source, task), (sum, ids))| {
        let groups = ids.iter().map(|id| {
            let weight = sums.get(*id).and_then(|sum| sum.weight);
            let group = all.groups.get(*id);
            object!({ "id": id, "seat": group.map(|group| &group.seat), "weight": weight })
        });
        let groups: Vec<Value> = groups.collect();
        let of = object!({ "source": source, "task": task, "groups": groups });
        sum.ranked_line(step, whole, ("task", of), sum.samples)
    });
    [groups.collect(), tasks.collect()]
}

/// Returns a key by which lines are sorted, the largest weight last; of equal weights, the larger part of its step.
fn rank_key(((weight, share), _): &RankedLine) -> (i64, i64) {
    // Sums of the same numbers in another order are equal up to rounding.
    ((weight * 1e6).round() as i64, (share * 1e6).round() as i64)
}

/// Line of the largest group of an agent, and the number of groups with its weight.
type Largest = BTreeMap<String, (RankedLine, usize)>;

/// Adds lines of groups to the largest group of each agent, of groups that have one.
fn add_largest(agents: &mut Largest, groups: &[RankedLine]) {
    for line in groups {
        let Some(seat) = line.1["group"]["seat"].as_str() else { continue };
        let (known, equal) = agents.entry(seat.to_owned()).or_insert_with(|| (line.clone(), 0));
        let (new, old) = (rank_key(line), rank_key(known));
        *equal = match new.0.cmp(&old.0) {
            Ordering::Less => *equal,
            Ordering::Equal => *equal + 1,
            Ordering::Greater => 1,
        };
        if new > old {
            *known = line.clone();
        }
    }
}

/// Returns the lines of the largest groups of agents.
fn of_agents(agents: Largest) -> Vec<Value> {
    agents
        .into_values()
        .map(|((_, mut line), equal): (RankedLine, usize)| {
            line["equal"] = json!(equal);
            line
        })
        .collect()
}

fn drop_ranks(lines: Vec<RankedLine>) -> Vec<Value> {
    lines.into_iter().map(|(_, line)| line).collect()
}

/// Lists the groups of a step.
pub(crate) fn step_groups(
    run: &ReportedRun,
    weights: &GroupWeights,
    step: u64,
) -> Result<Value, ReportProblem> {
    let all = recorded_samples(run, step)?;
    let both = ranked_lines(run, weights, step, &all);
    let mut agents = Largest::new();
    add_largest(&mut agents, &both[0]);
    let [groups, tasks] = both.map(drop_ranks);
    Ok(object!({
        "step": step, "estimator": all.estimator, "groups": groups, "tasks": tasks,
        "agents": of_agents(agents), "samples": all.samples.len(),
    }))
}

/// Returns the newest of steps with the sizes of their files, at most [`STEPS`] and at most `most` bytes, but the last one.
fn newest_steps(sizes: &[(u64, u64)], most: u64) -> Vec<u64> {
    let mut sum = 0;
    let read = sizes.iter().rev().take(STEPS).take_while(|(_, size): &&(u64, u64)| {
        sum += size;
        sum == *size || sum <= most
    });
    let mut steps: Vec<u64> = read.map(|(step, _)| *step).collect();
    steps.reverse();
    steps
}

/// Lists the groups and the tasks of all steps with the largest weights; of equal weights, those first that are the larger
/// part of their step.
pub(crate) fn largest_groups(
    run: &ReportedRun,
    weights: &GroupWeights,
) -> Result<Value, ReportProblem> {
    let files = entries(&run.path().join("samples")).unwrap_or_default();
    let files = files.iter().filter(|path| name(path).ends_with(".jsonl.zst"));
    let sizes = files.filter_map(|path| step_of(path)).map(|step| {
        let file = run.files.episodes_file(TRAIN, step).and_then(|file| file.metadata().ok());
        (step, file.map_or(0, |found| found.len()))
    });
    let mut sizes: Vec<(u64, u64)> = sizes.collect();
    sizes.sort_unstable();
    let read = newest_steps(&sizes, BYTES);
    let (mut found, mut samples, mut estimator) = ([Vec::new(), Vec::new()], 0, Value::Null);
    let mut agents = Largest::new();
    for step in &read {
        let all = recorded_samples(run, *step)?;
        let both = ranked_lines(run, weights, *step, &all);
        add_largest(&mut agents, &both[0]);
        for (found, lines) in found.iter_mut().zip(both) {
            found.extend(lines);
            sort_by(found, |a, b| rank_key(b).cmp(&rank_key(a)));
            found.truncate(LARGEST);
        }
        samples += all.samples.len();
        estimator = json!(all.estimator);
    }
    let [groups, tasks] = found.map(drop_ranks);
    Ok(object!({
        "step": Value::Null, "steps": [read.first(), read.last()], "of": sizes.len(),
        "estimator": estimator, "groups": groups, "tasks": tasks,
        "agents": of_agents(agents), "samples": samples,
    }))
}

/// Returns the problem of a sample whose turn is not in its episode.
fn missing_turn() -> ReportProblem {
    ReportProblem::unreadable("a sample names a turn that its episode does not have")
}

/// Describes one group with its samples.
pub(crate) fn group_samples(
    run: &ReportedRun,
    step: u64,
    id: usize,
) -> Result<Value, ReportProblem> {
    let all = recorded_samples(run, step)?;
    let group = all.groups.get(id);
    let group = group.ok_or_else(|| ReportProblem::missing("the step has no such group"))?;
    let mut episodes = BTreeMap::new();
    let (mut lines, mut replies, mut keys) = (Vec::new(), ReplySums::default(), Vec::new());
    for sample in all.of_group(id) {
        let (row, episode) = match episodes.entry(sample.episode) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(new) => {
                let StoredEpisode { row, episode, .. } =
                    read_stored(run, TRAIN, step, sample.episode as u64)?;
                new.insert((row, episode))
            }
        };
        let turn = episode.turns.get(sample.turn).ok_or_else(missing_turn)?;
        let prompt: Vec<String> =
            turn.prompt.iter().map(|message| message.content.clone()).collect();
        keys.push(TurnKey::new(turn.seat.to_string(), &prompt, &turn.reply));
        replies.add(keys[keys.len() - 1].clone(), sample.loss_advantage());
        let parts = episode.rewards.iter().filter(|part| match &part.of {
            RewardOf::Episode => true,
            RewardOf::Seat(of) => *of == turn.seat,
            RewardOf::Turn(of) => *of == sample.turn,
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
    for (line, own) in lines.iter_mut().zip(&keys) {
        line["equal"] = replies.count_equal(own).into();
        line["same"] = keys.iter().position(|other| other == own).into();
    }
    let question = episodes.values().next().map(|(_, episode)| episode.task.question.clone());
    Ok(object!({
        "step": step,
        "estimator": all.estimator,
        "group": group,
        "groups": all.groups.len(),
        "weight": replies.weight(),
        "question": question,
        "samples": lines,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_steps_are_read_up_to_a_size() {
        let sizes = [(1, 50), (2, 30), (3, 30), (4, 40)];
        assert_eq!(newest_steps(&sizes, 100), [2, 3, 4]);
        assert_eq!(newest_steps(&sizes, 10), [4], "the last one in any case");
        assert_eq!(newest_steps(&[], 10), [0; 0]);
        let many: Vec<(u64, u64)> = (1..=300).map(|step| (step, 0)).collect();
        assert_eq!(newest_steps(&many, 10), (101..=300).collect::<Vec<u64>>());
    }
}

//! Replay of groups: a buffer of the best groups of earlier steps, which take the place of groups without an advantage.
//!
//! ```text
//! score    mean |A| over the turns of a task in its step
//! kept     the n groups with the largest scores; of equal ones, the newest
//! drawn    one for each flat group of a step, without repetition, the next one in proportion to its score
//! ```
//!
//! A group has the log-probs that it was sampled with and the advantages of its own step. TRL's `grpo_with_replay_buffer` does the
//! same; its score is Σ |A| · deviation.

use std::collections::{BTreeMap, BTreeSet};

use maverl_kernels::sample::derive_seed;
use serde::{Deserialize, Serialize};

use crate::algo::advantage::rounding_of;
use crate::algo::{Sample, TaskKey, samples};
use crate::plan::Plan;
use crate::rng::arrival_time;
use crate::trajectory::Episode;

/// A group of an earlier step, by reference to the recorded episodes of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptGroup {
    /// Step that played it, from 1.
    pub(crate) step: u64,
    /// Source of its task.
    pub(crate) source: String,
    /// Id of its task.
    pub(crate) task: String,
    /// Mean absolute advantage of its turns.
    pub(crate) score: f64,
    /// Advantage of each of its turns that were trained on, in the order of samples.
    pub(crate) advantages: Vec<f64>,
}

impl KeptGroup {
    /// Returns true if an episode of its step belongs to it.
    pub(crate) fn contains(&self, episode: &Episode) -> bool {
        episode.task.source == self.source && episode.task.id == self.task
    }
}

/// Groups of earlier steps, the largest score first; of equal ones, the newest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct GroupBuffer(Vec<KeptGroup>);

impl GroupBuffer {
    /// Returns true if no group is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the groups.
    pub(crate) fn groups(&self) -> &[KeptGroup] {
        &self.0
    }

    /// Removes the groups that are more than `max_age` steps older than a step; none if it is 0.
    pub(crate) fn retire(&mut self, step: u64, max_age: u64) {
        self.0.retain(|group| max_age == 0 || group.step.saturating_add(max_age) >= step);
    }

    /// Adds groups of a step, and keeps the best `most`.
    pub(crate) fn add(&mut self, groups: impl IntoIterator<Item = KeptGroup>, most: usize) {
        for group in groups {
            let better = self.0.partition_point(|kept| kept.score > group.score);
            self.0.insert(better, group);
        }
        self.0.truncate(most);
    }

    /// Draws up to `count` groups. What is drawn depends on the seed and on the kept groups alone.
    pub(crate) fn draw(&self, count: usize, seed: u64) -> Vec<KeptGroup> {
        let timed = self.0.iter().zip(0..).map(|(group, place)| {
            let time = arrival_time(derive_seed(seed, place), group.score);
            (time, group)
        });
        let mut timed: Vec<(f64, &KeptGroup)> = timed.collect();
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        timed.into_iter().take(count).map(|(_, group)| group.clone()).collect()
    }
}

/// Groups of a step: the samples of each task.
#[derive(Debug, PartialEq)]
pub(crate) struct StepGroups {
    /// Tasks whose advantages are all 0, up to rounding.
    pub(crate) flat: Vec<TaskKey>,
    /// All others.
    pub(crate) kept: Vec<KeptGroup>,
}

impl StepGroups {
    /// Divides the samples of a step, counted from 1, by their tasks. `advantages` has those of each token, `[N][T]`, which are
    /// equal within a sample.
    pub(crate) fn new(step: u64, samples: &[Sample], advantages: &[Vec<f64>]) -> Self {
        let mut tasks: BTreeMap<&TaskKey, Vec<f64>> = BTreeMap::new();
        for (sample, advantages) in samples.iter().zip(advantages) {
            let advantage = advantages.first().copied().unwrap_or(0.0);
            tasks.entry(&sample.task).or_default().push(advantage);
        }
        let (mut flat, mut kept) = (Vec::new(), Vec::new());
        for (key, advantages) in tasks {
            if advantages.iter().all(|advantage| advantage.abs() <= rounding_of(0.0)) {
                flat.push(key.clone());
                continue;
            }
            let sum: f64 = advantages.iter().map(|advantage| advantage.abs()).sum();
            let score = sum / advantages.len() as f64;
            let TaskKey { source, id } = key.clone();
            kept.push(KeptGroup { step, source, task: id, score, advantages });
        }
        Self { flat, kept }
    }
}

/// A group that a step replays.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReplayedGroup {
    /// Step that played it, from 1.
    pub(crate) step: u64,
    /// Its episodes, as they were recorded.
    pub(crate) episodes: Vec<Episode>,
    /// Turns that are trained on, with their places in `episodes`.
    pub(crate) samples: Vec<Sample>,
    /// Advantage of each token of each sample, those of its own step. `[N][T]`
    pub(crate) advantages: Vec<Vec<f64>>,
}

impl ReplayedGroup {
    /// Returns a kept group with its recorded episodes; `None` if these are not those that it refers to.
    pub(crate) fn new(plan: &Plan, kept: &KeptGroup, episodes: Vec<Episode>) -> Option<Self> {
        let samples = samples(&episodes, plan);
        if samples.len() != kept.advantages.len() {
            return None;
        }
        let rows = samples.iter().zip(&kept.advantages);
        let advantages = rows.map(|(sample, advantage)| vec![*advantage; sample.tokens]).collect();
        Some(Self { step: kept.step, episodes, samples, advantages })
    }
}

/// Groups that a step replays, and the tasks of the step in whose place they are.
#[derive(Debug, Default)]
pub(crate) struct ReplayedGroups {
    pub(crate) groups: Vec<ReplayedGroup>,
    pub(crate) replaced: BTreeSet<TaskKey>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::testing::{assert_close, episode, learning, numbers, plan, turn};

    fn group(task: &str, step: u64, score: f64) -> KeptGroup {
        let (source, task) = ("test".to_owned(), task.to_owned());
        KeptGroup { step, source, task, score, advantages: vec![score, -score] }
    }

    fn names(groups: &[KeptGroup]) -> Vec<&str> {
        groups.iter().map(|group| group.task.as_str()).collect()
    }

    #[test]
    fn the_best_groups_are_kept_and_drawn_in_proportion_to_their_scores_as_recorded() {
        let case = learning("task/replay");
        let groups = case["inputs"]["groups"].as_array().unwrap().iter().zip(1..);
        let groups = groups.map(|(of, step)| {
            group(of["id"].as_str().unwrap(), step, of["score"].as_f64().unwrap())
        });
        let most = case["params"]["capacity"].as_u64().unwrap() as usize;
        let mut buffer = GroupBuffer::default();
        groups.for_each(|group| buffer.add([group], most));
        let kept: Vec<&str> = case["outputs"]["kept"]
            .as_array()
            .unwrap()
            .iter()
            .map(|id| id.as_str().unwrap())
            .collect();
        assert_eq!(names(buffer.groups()), kept);
        let (mut shares, draws) = (vec![0.0; most], 4000);
        for seed in 0..draws {
            let drawn = buffer.draw(9, seed);
            assert_eq!(drawn.len(), most, "all of them, without repetition");
            let first = kept.iter().position(|id| *id == drawn[0].task).unwrap();
            shares[first] += 1.0 / draws as f64;
        }
        println!("shares of first draws: {shares:.3?}");
        assert_close("shares", &shares, &numbers(&case["outputs"]["shares"]), 0.03);
    }

    #[test]
    fn groups_retire_by_age_and_a_buffer_is_the_same_after_it_was_written() {
        let mut buffer = GroupBuffer::default();
        buffer.add([group("p", 1, 0.1 + 0.2), group("q", 4, 1.0 / 3.0), group("r", 5, 0.7)], 8);
        let text = serde_json::to_string(&buffer).unwrap();
        assert_eq!(serde_json::from_str::<GroupBuffer>(&text).unwrap(), buffer);
        let drawn = buffer.draw(2, 5);
        assert_eq!(buffer.draw(2, 5), drawn);
        assert!((0..64).any(|seed| buffer.draw(2, seed) != drawn));
        buffer.retire(9, 0);
        assert_eq!(names(buffer.groups()), ["r", "q", "p"]);
        buffer.retire(6, 2);
        assert_eq!(names(buffer.groups()), ["r", "q"]);
        buffer.retire(7, 2);
        assert_eq!(names(buffer.groups()), ["r"]);
    }

    #[test]
    fn a_task_without_an_advantage_is_flat_and_others_are_kept_with_their_advantages() {
        let plan = plan(&[("t/a", true)]);
        let played = |task: &str, index| episode(task, index, 0.0, vec![turn("t/a", 0)]);
        let episodes = [played("p", 0), played("q", 0), played("p", 1), played("q", 1)];
        let rows = samples(&episodes, &plan);
        let advantages: Vec<Vec<f64>> =
            [0.0, 1e-14, -0.75, 0.25].into_iter().map(|value| vec![value; 2]).collect();
        let found = StepGroups::new(3, &rows, &advantages);
        assert_eq!(found.flat, [rows[0].task.clone()]);
        let [kept] = &found.kept[..] else { panic!("{found:?}") };
        assert_eq!((kept.step, kept.task.as_str(), kept.score), (3, "q", 0.5));
        assert_eq!(kept.advantages, [-0.75, 0.25]);
        let its: Vec<Episode> =
            episodes.iter().filter(|episode| kept.contains(episode)).cloned().collect();
        let replayed = ReplayedGroup::new(&plan, kept, its.clone()).unwrap();
        assert_eq!(replayed.advantages, [[-0.75; 2], [0.25; 2]]);
        assert_eq!(replayed.samples.iter().map(|row| row.episode).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(ReplayedGroup::new(&plan, kept, its[..1].to_vec()), None, "an episode is gone");
    }
}

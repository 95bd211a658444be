//! Replay of groups (`algorithm.replay`): groups of earlier steps are read from the files of episodes that the run wrote, and take
//! the place of flat groups of a step.
//!
//! The state of the algorithm has references to these files alone. So a run that is resumed replays the same groups, and `maverl
//! replay` learns from them again. Rank 0 reads, and sends the episodes to the others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use maverl_kernels::sample::derive_seed;

use crate::algo::{KeptGroup, ReplayedGroup, ReplayedGroups, Sample, StepGroups};
use crate::config::ReplayPlan;
use crate::metrics::Metrics;
use crate::plan::Plan;
use crate::run_dir::error::{At, damaged_error};
use crate::run_dir::{ReplayedRecord, RunDirError, read_rollouts, rollouts_of};
use crate::train::error::TrainError;
use crate::train::learner::Learner;
use crate::train::learner::batches::{StepAdvantages, StepPlan};
use crate::train::record::measure::mean_of;
use crate::trajectory::Episode;

/// Salt of the seeds of draws.
const REPLAY: u64 = 0x7265_706c_6179;

impl Learner {
    /// Reads episodes of earlier steps in the directory of a run from now on.
    pub(in crate::train) fn read_episodes_in(&mut self, dir: &Path) {
        self.recorded = Some(dir.to_owned());
    }

    /// Fails if a file of episodes is gone that a kept group refers to.
    pub(super) fn find_kept_groups(&self) -> Result<(), RunDirError> {
        let groups = self.state.replay.groups().iter();
        groups.filter_map(|group| self.file_of(group)).try_for_each(|file| {
            let found = std::fs::metadata(&file);
            found.map(drop).at("replay groups of episodes (`algorithm.replay`) of", &file)
        })
    }

    /// Returns the file of the episodes of a group, on the rank that reads.
    fn file_of(&self, group: &KeptGroup) -> Option<PathBuf> {
        let dir = self.recorded.as_ref().filter(|_| self.peers.leads())?;
        Some(rollouts_of(dir, group.step))
    }

    /// Chooses groups of earlier steps for the flat groups of a step, and keeps those of the step that are better than others. A
    /// step that replays groups is not flat.
    pub(super) async fn replay_groups(
        &mut self,
        at: &StepPlan<'_>,
        samples: &[Sample],
        advantages: &mut StepAdvantages,
    ) -> Result<(), TrainError> {
        let ReplayPlan { groups: most, max_age } = at.plan.algorithm.replay;
        if most == 0 {
            return Ok(());
        }
        let step = at.step + 1;
        if advantages.flat {
            advantages.tokens.iter_mut().flatten().for_each(|advantage| *advantage = 0.0);
        }
        let StepGroups { flat, kept } = StepGroups::new(step, samples, &advantages.tokens);
        let seed = derive_seed(derive_seed(at.plan.config.seed, REPLAY), at.step);
        let buffer = &mut self.state.replay;
        buffer.retire(step, max_age);
        let drawn = buffer.draw(flat.len(), seed);
        buffer.add(kept, most as usize);
        let kept = buffer.groups().len();
        let groups = self.recorded_groups(at.plan, &drawn).await?;
        advantages.metrics.extend(metrics(step, kept, &groups));
        advantages.record.replayed = drawn.iter().map(record).collect();
        advantages.flat &= groups.is_empty();
        let replaced = flat.into_iter().take(groups.len()).collect();
        advantages.replayed = ReplayedGroups { groups, replaced };
        Ok(())
    }

    /// Reads the episodes of groups.
    async fn recorded_groups(
        &self,
        plan: &Plan,
        drawn: &[KeptGroup],
    ) -> Result<Vec<ReplayedGroup>, TrainError> {
        if drawn.is_empty() {
            return Ok(Vec::new());
        }
        let mut episodes = vec![Vec::new(); drawn.len()];
        for (place, episode) in self.peers.exchange(self.read_groups(drawn)?).await? {
            episodes[place].push(episode);
        }
        let mut groups = Vec::with_capacity(drawn.len());
        for (kept, episodes) in drawn.iter().zip(episodes) {
            let group = ReplayedGroup::new(plan, kept, episodes).ok_or_else(|| {
                let file = self.file_of(kept).unwrap_or_default();
                let KeptGroup { task, advantages, .. } = kept;
                let turns = advantages.len();
                let reason =
                    format!("it had {turns} trained turns of task `{task}`, and has others");
                damaged_error(&file, reason)
            })?;
            groups.push(group);
        }
        Ok(groups)
    }

    /// Reads the episodes of groups, each with the number of its group; none on a rank that does not read.
    fn read_groups(&self, drawn: &[KeptGroup]) -> Result<Vec<(usize, Episode)>, RunDirError> {
        // One file after another: a step may have thousands of episodes.
        let mut by_step: BTreeMap<u64, Vec<(usize, &KeptGroup)>> = BTreeMap::new();
        for (number, group) in drawn.iter().enumerate() {
            by_step.entry(group.step).or_default().push((number, group));
        }
        let mut found = Vec::new();
        for groups in by_step.values() {
            let Some(file) = self.file_of(groups[0].1) else { continue };
            for episode in read_rollouts(&file)? {
                let own = groups.iter().filter(|(_, group)| group.contains(&episode));
                found.extend(own.map(|(number, _)| (*number, episode.clone())));
            }
        }
        Ok(found)
    }
}

/// Returns the record of a group that is replayed.
fn record(group: &KeptGroup) -> ReplayedRecord {
    let KeptGroup { step, source, task, advantages, .. } = group.clone();
    ReplayedRecord { step, source, task, advantages }
}

/// Returns the metrics of a step, counted from 1: groups in the buffer, and groups that are replayed.
fn metrics(step: u64, kept: usize, groups: &[ReplayedGroup]) -> Metrics {
    let mut metrics = Metrics::default();
    metrics.set("replay/kept", kept as f64);
    metrics.set("replay/groups", groups.len() as f64);
    let of_groups = groups.iter().map(|group| (group.samples.len(), (step - group.step) as f64));
    let ages: Vec<f64> =
        of_groups.flat_map(|(samples, age)| std::iter::repeat_n(age, samples)).collect();
    metrics.set("replay/samples", ages.len() as f64);
    if !ages.is_empty() {
        metrics.set("replay/age_max", ages.iter().copied().fold(0.0, f64::max));
        metrics.set("replay/age_mean", mean_of(ages));
    }
    metrics
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::testing::{episode, plan, turn};
    use crate::credit::{CPU, Estimators};
    use crate::run_dir::write_rollouts;
    use crate::train::learner::batches::{Batches, advantages, batches, samples};
    use crate::train::learner::critic::ValuePredictions;
    use crate::train::learner::state::AlgorithmState;
    use crate::train::ranks::RankPeers;

    /// Returns two episodes of each task, with these rewards.
    fn played(tasks: &[(&str, [f64; 2])]) -> Vec<Episode> {
        let one = |task: &str, index, reward| episode(task, index, reward, vec![turn("t/a", 0)]);
        let both = |(task, [a, b]): &(&str, [f64; 2])| [one(task, 0, *a), one(task, 1, *b)];
        tasks.iter().flat_map(both).collect()
    }

    /// Returns a learner without policies, with a state, of a run in a directory.
    fn learner(state: AlgorithmState, dir: &Path) -> Learner {
        let mut learner = Learner::new(&[], RankPeers::default(), Estimators::default());
        learner.state = state;
        learner.read_episodes_in(dir);
        learner
    }

    /// Records the episodes of a step, counted from 0, and learns from them up to the batches.
    async fn learn(
        learner: &mut Learner,
        (plan, step): (&Plan, u64),
        episodes: &[Episode],
    ) -> (StepAdvantages, Batches) {
        let file = rollouts_of(learner.recorded.as_ref().unwrap(), step + 1);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        write_rollouts(&file, episodes).unwrap();
        let at = StepPlan { plan, step, rates: None };
        let rows = samples(&at, episodes, &mut learner.state, &CPU).unwrap().rows;
        let none = ValuePredictions::default();
        let mut found = advantages(plan, episodes, &rows, &none, (&CPU, 0.0));
        learner.replay_groups(&at, &rows, &mut found).await.unwrap();
        let batches = batches(&at, episodes, &rows, &found, &none);
        (found, batches)
    }

    #[tokio::test]
    async fn a_flat_step_learns_from_a_recorded_group_and_so_does_one_with_a_state_that_was_read() {
        let mut plan = plan(&[("t/a", true)]);
        plan.algorithm.replay = ReplayPlan { groups: 2, max_age: 0 };
        let home = tempfile::tempdir().unwrap();
        let mut whole = learner(AlgorithmState::default(), home.path());
        let first = played(&[("p", [1.0, 0.0]), ("q", [0.5, 0.5])]);
        let (found, batches) = learn(&mut whole, (&plan, 0), &first).await;
        assert!(found.replayed.groups.is_empty(), "nothing is kept before the first step");
        assert_eq!(batches.policies[0].1.trained_rows().count(), 4);
        let text = serde_json::to_string(&whole.state).unwrap();
        let mut resumed = learner(serde_json::from_str(&text).unwrap(), home.path());
        resumed.find_kept_groups().unwrap();
        let flat = played(&[("p", [0.0, 0.0]), ("r", [1.0, 1.0])]);
        for learner in [&mut whole, &mut resumed] {
            let (found, batches) = learn(learner, (&plan, 1), &flat).await;
            assert!(!found.flat);
            let [group] = &found.replayed.groups[..] else { panic!("{:?}", found.replayed) };
            assert_eq!(group.episodes[..], first[..2]);
            let rows = batches.policies[0].1.rows.iter();
            let rows: Vec<(bool, f32)> = rows.map(|row| (row.skipped, row.advantages[1])).collect();
            let a = group.advantages[0][0] as f32;
            assert!(a > 0.7);
            let own = [(true, 0.0), (true, 0.0), (false, 0.0), (false, 0.0)];
            assert_eq!(rows, [&own[..], &[(false, a), (false, -a)]].concat());
            assert_eq!(found.record.replayed[0].advantages.len(), 2);
            let metric = |name: &str| found.metrics.get(&format!("replay/{name}"));
            let metrics = ["kept", "groups", "samples", "age_mean", "age_max"].map(metric);
            assert_eq!(metrics, [1.0, 1.0, 2.0, 1.0, 1.0].map(Some));
        }
        assert_eq!(whole.state, resumed.state);
        std::fs::remove_file(rollouts_of(home.path(), 1)).unwrap();
        let gone = resumed.find_kept_groups().unwrap_err().to_string();
        let told = "cannot replay groups of episodes (`algorithm.replay`) of";
        assert!(gone.starts_with(told) && gone.contains("step-000001"), "{gone}");
    }
}

//! Replay of a training episode of a run, with the weights of its step.
//!
//! A run keeps few checkpoints and every episode. Weights between two checkpoints are recomputed by training on the
//! stored episodes of the steps between, which needs no generation and gives the same bits.

pub(super) mod alternatives;
mod weights;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::output::visible;
use crate::plan::Plan;
use crate::registry::Registry;
use crate::rollout::{self, Replayed, RolloutError, TurnVersions};
use crate::run_dir::{RunDir, TopRecord, read_rollouts};
use crate::runtime::{Policy, Runtime};
use crate::train::error::TrainError;
use crate::train::progress::Progress;
use crate::train::ranks::RankPeers;
use crate::train::replay::alternatives::alternatives;
use crate::train::replay::weights::load_weights;
use crate::train::step::sink::Observers;
use crate::train::training::Training;
use crate::train::training::dataset::Needs;
use crate::train::training::exact::mismatch_bound;
use crate::trajectory::{Episode, Turn};

/// Maximum number of names in an error.
const NAMES: usize = 6;

/// A training episode as its run stored it.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedEpisode {
    /// Step of the episode, from 1.
    pub step: u64,
    /// The stored episode.
    pub episode: Episode,
}

impl RecordedEpisode {
    /// Reads the episode of a name: `STEP/TASK/INDEX`, or `STEP/SOURCE/TASK/INDEX` if two data sources have the task.
    ///
    /// # Errors
    ///
    /// [`TrainError::NoEpisode`] with existing names, or a file that cannot be read.
    pub fn read(run: &RunDir, name: &str) -> Result<Self, TrainError> {
        let steps = run.rollout_steps()?;
        let (step, rest) = name.split_once('/').unwrap_or((name, ""));
        let found = match (steps.first(), steps.last()) {
            (Some(&first), Some(last)) => match step.parse().ok().filter(|it| steps.contains(it)) {
                Some(step) => {
                    let episodes = read_rollouts(&run.rollouts(step))?;
                    let found = find(&episodes, step, rest);
                    found.map(|at| Self { step, episode: episodes[at].clone() })
                }
                None => {
                    let episodes = read_rollouts(&run.rollouts(first))?;
                    let names = there_are(&episodes, first, "");
                    Err(format!("its steps are {first} to {last}; {names}"))
                }
            },
            _ => Err("it has done no step".to_owned()),
        };
        found.map_err(|found| TrainError::NoEpisode {
            run: run.path().to_owned(),
            name: name.to_owned(),
            found,
        })
    }

    /// Returns the names of a step's episodes, in order; `None` if the run has no such step.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn names(run: &RunDir, step: u64) -> Result<Option<Vec<String>>, TrainError> {
        if !run.rollout_steps()?.contains(&step) {
            return Ok(None);
        }
        let episodes = read_rollouts(&run.rollouts(step))?;
        let sources: BTreeSet<(&str, &str)> = episodes
            .iter()
            .map(|episode| (episode.task.id.as_str(), episode.task.source.as_str()))
            .collect();
        let names = episodes.iter().map(|episode| {
            let shared = sources.iter().filter(|(id, _)| *id == episode.task.id).count() > 1;
            if shared { with_source(step, episode) } else { name(step, episode) }
        });
        Ok(Some(names.collect()))
    }

    /// Returns the name of the episode, as [`RecordedEpisode::read`] accepts it.
    pub fn name(&self) -> String {
        name(self.step, &self.episode)
    }
}

fn name(step: u64, episode: &Episode) -> String {
    format!("{step}/{}/{}", episode.task.id, episode.index)
}

fn with_source(step: u64, episode: &Episode) -> String {
    format!("{step}/{}/{}/{}", episode.task.source, episode.task.id, episode.index)
}

/// Returns the index of the episode called `rest` in a step, or a message with the existing ones.
fn find(episodes: &[Episode], step: u64, rest: &str) -> Result<usize, String> {
    let wanted = format!("{step}/{rest}");
    let places = 0..episodes.len();
    let found: Vec<usize> = places.filter(|&at| is_called(&episodes[at], step, &wanted)).collect();
    match found[..] {
        [] => Err(there_are(episodes, step, rest)),
        // A task that was drawn twice in a step has equal episodes.
        [first, ..]
            if found.iter().all(|&at| episodes[at].task.source == episodes[first].task.source) =>
        {
            Ok(first)
        }
        _ => {
            let names = found.iter().map(|&at| with_source(step, &episodes[at]));
            Err(format!("it is one of {}", quote_names(names)))
        }
    }
}

/// Returns true if an episode of a step has a name, also as it is printed: with marks in place of hidden characters.
fn is_called(episode: &Episode, step: u64, wanted: &str) -> bool {
    let names = [name(step, episode), with_source(step, episode)];
    names.iter().any(|name| name == wanted || visible(name) == wanted)
}

/// Lists the first names of a step, of the requested task if there is one.
fn there_are(episodes: &[Episode], step: u64, rest: &str) -> String {
    let task = format!("{step}/{}/", rest.trim_end_matches('/'));
    let of_task: Vec<String> = episodes
        .iter()
        .flat_map(|episode| [name(step, episode), with_source(step, episode)])
        .filter(|name| !rest.is_empty() && name.starts_with(&task))
        .collect();
    let names = if of_task.is_empty() {
        episodes.iter().map(|episode| name(step, episode)).collect()
    } else {
        of_task
    };
    match names.len() {
        0 => format!("step {step} played none, as training on demonstrations does not"),
        n => {
            let more = if n > NAMES { ", ..." } else { "" };
            format!("step {step} has {}{more}", quote_names(names.into_iter().take(NAMES)))
        }
    }
}

fn quote_names(names: impl Iterator<Item = String>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Scope of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayScope {
    /// The episode is played again, in its environment.
    Episode,
    /// Every recorded turn is sampled again from its own prompt.
    Turns,
}

/// Options of a replay.
#[derive(Debug, Clone, Copy)]
pub struct ReplayOptions {
    /// Scope of the replay.
    pub scope: ReplayScope,
    /// Number of the likeliest tokens that are recorded at each sampled token.
    pub top: Option<usize>,
}

/// Replays a training episode of a run with the weights of its step, and compares every turn: ids to the bit, log-probs too,
/// or within a bound on a device whose results are not the same in every company.
///
/// `plan` is that of the run's own configuration. Stored episodes of evaluations are not replayed. With
/// [`ReplayOptions::top`], the record has so many of the likeliest tokens at each sampled token.
///
/// # Errors
///
/// See [`TrainError`]. A different episode is not an error.
pub async fn replay(
    plan: &Plan,
    registry: &Registry,
    run: &RunDir,
    recorded: &RecordedEpisode,
    options: ReplayOptions,
    progress: &Arc<dyn Progress>,
) -> Result<(Replayed, Option<TopRecord>), TrainError> {
    let names = (0..plan.policies.len()).filter_map(|policy| plan.rollout_servers(policy));
    if let Some((name, _)) = names.into_iter().next() {
        let problem =
            "they do not sample the same tokens again, so episodes of the run cannot be replayed"
                .to_owned();
        return Err(RolloutError::Servers { name: name.to_owned(), problem }.into());
    }
    // With later weights for later turns, all of them are there at once.
    let specs = match plan.config.rollout.advance_turns {
        0 => plan.worker_specs(),
        _ => plan.training_specs(),
    };
    let runtime = Runtime::start(&specs, &plan.runtime_options())?;
    let replayed = async {
        let observers = Observers::new(progress);
        let alone = (observers, &RankPeers::default());
        let mut training = Training::start(plan, registry, &runtime, Needs::Nothing, alone)?;
        let of = (recorded.step, &recorded.episode);
        let later = load_weights(&mut training, plan, run, of, &**progress).await?;
        let at = (recorded.step.saturating_sub(1), &recorded.episode);
        let rollout = training.rollout_of(at, later.clone());
        let bound = mismatch_bound(plan);
        let replayed = match options.scope {
            ReplayScope::Episode => rollout::replay(&rollout, &recorded.episode, bound).await,
            ReplayScope::Turns => rollout::replay_turns(&rollout, &recorded.episode, bound).await,
        };
        let top = match options.top {
            Some(top) => {
                let policy = |turn: &Turn| policy_of((plan, &runtime), later.as_ref(), turn);
                Some(alternatives(policy, (recorded.name(), &recorded.episode), top).await?)
            }
            None => None,
        };
        Ok((replayed, top))
    };
    let replayed = replayed.await;
    runtime.shutdown();
    replayed
}

/// Returns the policy with the weights that sampled a turn; `None` if the plan has no such policy.
fn policy_of(
    (plan, runtime): (&Plan, &Runtime),
    versions: Option<&TurnVersions>,
    turn: &Turn,
) -> Option<Policy> {
    let Some(versions) = versions else { return runtime.policy(&turn.policy).cloned() };
    let index = plan.policies.iter().position(|policy| policy.name == turn.policy)?;
    versions.policy(&turn.path, index).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::*;
    use crate::run_dir::tests::{episode, origin};
    use crate::run_dir::write_rollouts;

    fn run(home: &Path, steps: &[(u64, &[Episode])]) -> RunDir {
        let run = RunDir::create(&home.join("a"), &origin()).unwrap();
        for (step, episodes) in steps {
            write_rollouts(&run.rollouts(*step), episodes).unwrap();
        }
        run
    }

    fn error(run: &RunDir, name: &str) -> String {
        RecordedEpisode::read(run, name).unwrap_err().to_string()
    }

    #[test]
    fn an_episode_is_found_by_its_name_whatever_the_id_of_its_task() {
        let home = tempfile::tempdir().unwrap();
        let played = [episode("train/1", 0, true, 1), episode("train/1", 1, false, 2)];
        let run = run(home.path(), &[(3, &played)]);
        let recorded = RecordedEpisode::read(&run, "3/train/1/1").unwrap();
        assert_eq!((recorded.step, &recorded.episode), (3, &played[1]));
        assert_eq!(recorded.name(), "3/train/1/1");
        assert_eq!(RecordedEpisode::read(&run, "3/facts/train/1/1").unwrap(), recorded);
    }

    #[test]
    fn a_name_of_no_episode_is_answered_with_names_that_there_are() {
        let home = tempfile::tempdir().unwrap();
        let many: Vec<_> = (0..8).map(|index| episode("a", index, true, 1)).collect();
        let run = run(home.path(), &[(1, &many), (2, &[episode("b", 0, true, 1)]), (3, &[])]);
        let text = error(&run, "9/a/0");
        assert!(text.contains("its steps are 1 to 3; step 1 has `1/a/0`, `1/a/1`"), "{text}");
        assert!(text.ends_with("`1/a/5`, ..."), "{text}");
        for name in ["2", "2/", "2/a", "2/b", "2/b/", "2/b/1", "2/b/x"] {
            let text = error(&run, name);
            assert!(text.ends_with("step 2 has `2/b/0`"), "{name}: {text}");
        }
        assert!(error(&run, "3/a/0").contains("step 3 played none"));
        assert!(error(&run, "last").contains("its steps are"));
    }

    #[test]
    fn the_episodes_of_a_step_are_listed_by_names_that_are_read() {
        let home = tempfile::tempdir().unwrap();
        let mut other = episode("b", 0, true, 2);
        other.task.source = "hotpot".to_owned();
        let played = [episode("a", 0, true, 1), episode("b", 0, true, 1), other];
        let run = run(home.path(), &[(1, &played), (2, &[])]);
        let names = RecordedEpisode::names(&run, 1).unwrap().unwrap();
        assert_eq!(names, ["1/a/0", "1/facts/b/0", "1/hotpot/b/0"]);
        for (name, played) in names.iter().zip(&played) {
            assert_eq!(RecordedEpisode::read(&run, name).unwrap().episode, *played);
        }
        assert_eq!(RecordedEpisode::names(&run, 2).unwrap().unwrap(), [""; 0]);
        assert_eq!(RecordedEpisode::names(&run, 3).unwrap(), None);
    }

    #[test]
    fn a_run_without_a_step_has_no_episode() {
        let home = tempfile::tempdir().unwrap();
        assert!(error(&run(home.path(), &[]), "1/a/0").ends_with("it has done no step"));
    }

    #[test]
    fn a_task_of_two_sources_is_named_with_its_source() {
        let home = tempfile::tempdir().unwrap();
        let mut other = episode("a", 0, true, 2);
        other.task.source = "hotpot".to_owned();
        let run = run(home.path(), &[(1, &[episode("a", 0, true, 1), other.clone()])]);
        let text = error(&run, "1/a/0");
        assert!(text.ends_with("it is one of `1/facts/a/0`, `1/hotpot/a/0`"), "{text}");
        assert_eq!(RecordedEpisode::read(&run, "1/hotpot/a/0").unwrap().episode, other);
    }
}

//! Checkpoints: the complete state of a run, written atomically.
//!
//! ```text
//! checkpoints/step-000010/
//!   policies/small/            a Hugging Face model directory, or for an adapter PEFT's; and the optimizer's moments
//!     critic/                  the critic of the policy: its trunk, if it has its own, its head, its optimizer's moments
//!   mixer.safetensors          the mixer, if a network mixes the values of agents
//!   verifier.json              the calibration of a verifier
//!   trainer.json               see `TrainerState`
//!   algorithm.json             the state of the algorithm, if it has any
//!   manifest.json              written last: checksums of the others
//! checkpoints/best.json        the step with the best validation
//! ```
//!
//! A checkpoint is written as `.tmp-step-000010`, synced file by file by a thread beside the run, and renamed. A checkpoint
//! with a wrong checksum is an error that names the file; an older checkpoint is used only on request.
//!
//! One is written before the first step of several, after every `checkpoint.every`-th step, after a step with a new best
//! validation, after the last step, and after the step at which a run is stopped (`train/run.rs`). `prune` decides
//! which are kept. A new file is written and read in `train/learner.rs`, and is in the list above.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::metrics::{Crashes, Malformed, SeatTotals};
use crate::run_dir::disk::{
    TEMPORARY, adopt, entries, file_name, name, read_json, read_json_if_any, remove, step_of,
    sweep, sync_dir, sync_tree, temporary, write_json,
};
use crate::run_dir::error::{At, damaged_error};
use crate::run_dir::{FileHash, Manifest, RunDirError};
use crate::runtime::SavedMoments;
use crate::trajectory::Seat;

const TRAINER: &str = "trainer.json";
const BEST: &str = "best.json";

/// State of training, beside weights and moments. Task order and every seed derive from `seed` and `step`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TrainerState {
    /// Number of completed steps.
    pub step: u64,
    /// Seed of the run.
    pub seed: u64,
    /// Number of consecutive steps, up to this one, in which no group had a spread of rewards.
    pub flat_steps: u64,
    /// Best validation so far.
    pub best: Option<Best>,
    /// Hash of the settings of the validation that `best` is; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_settings: Option<u64>,
    /// Sums over every training episode, by seat.
    pub agents: BTreeMap<Seat, SeatTotals>,
    /// Hash and length of each growing file at this checkpoint.
    pub files: BTreeMap<String, FileHash>,
    /// Warnings that are given once a run and were given.
    #[serde(default)]
    pub warned: Warned,
    /// Moments of the optimizers in this checkpoint; absent in the file if they are as they were.
    #[serde(default, skip_serializing_if = "SavedMoments::is_exact")]
    pub moments: SavedMoments,
    /// True if the run went on from a checkpoint whose moments were not as they were.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moments_lost: bool,
}

/// Warnings that are given once a run and were given, so that a resumed run has the warnings of an uninterrupted one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Warned {
    /// Seats whose replies were nearly all malformed.
    pub malformed: Malformed,
    /// Crashes of programs in the last steps.
    #[serde(default)]
    pub crashes: Crashes,
    /// Names of other warnings.
    pub others: BTreeSet<String>,
}

/// Best validation so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Number of completed steps.
    pub step: u64,
    /// Share of solved tasks.
    pub exact_match: f64,
}

/// Selection of a checkpoint of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Which {
    /// The newest checkpoint.
    Last,
    /// The best checkpoint by validation.
    Best,
    /// The checkpoint after this number of steps.
    Step(u64),
}

/// The checkpoints of one run.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    dir: PathBuf,
}

/// A checkpoint whose checksums match.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// State of training at the checkpoint.
    pub state: TrainerState,
    dir: PathBuf,
}

/// A checkpoint being written. It is not visible until [`Draft::commit`].
#[derive(Debug)]
pub struct Draft {
    dir: PathBuf,
    target: PathBuf,
}

impl Checkpoints {
    /// Returns the checkpoints of the run in a directory.
    pub fn of(run: &Path) -> Self {
        Self { dir: run.join("checkpoints") }
    }

    /// Returns the steps that have a checkpoint, ascending.
    ///
    /// # Errors
    ///
    /// If the directory cannot be listed.
    pub fn steps(&self) -> Result<Vec<u64>, RunDirError> {
        let mut steps: Vec<u64> = entries(&self.dir)?
            .iter()
            .filter(|path| !name(path).starts_with(TEMPORARY) && path.is_dir())
            .filter_map(|path| step_of(path))
            .collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// Opens a checkpoint and verifies every file of it.
    ///
    /// # Errors
    ///
    /// If there is no such checkpoint, or a file of it is damaged. The message names the file.
    pub fn open(&self, which: Which) -> Result<Checkpoint, RunDirError> {
        let steps = self.steps()?;
        let (wanted, step) = match which {
            Which::Last => ("checkpoint".to_owned(), steps.last().copied()),
            Which::Best => {
                let best = self.best()?.map(|best| best.step);
                ("best checkpoint (`eval.every` makes them)".to_owned(), best)
            }
            Which::Step(step) => (format!("checkpoint of step {step}"), Some(step)),
        };
        let Some(step) = step.filter(|step| steps.contains(step)) else {
            let found = steps.iter().map(|step| format!("step {step}")).collect();
            return Err(RunDirError::NoCheckpoint { path: self.dir.clone(), wanted, found });
        };
        let dir = self.path(step);
        let verified = Manifest::read(&dir).and_then(|manifest| manifest.verify(&dir, |_| true));
        match verified.and_then(|()| read_json(&dir.join(TRAINER))) {
            Ok(state) => Ok(Checkpoint { state, dir }),
            Err(error) => Err(self.with_remedy(step, error)),
        }
    }

    /// Adds a remedy to an error about a file that the checkpoint of `step` requires.
    pub(crate) fn with_remedy(&self, step: u64, error: RunDirError) -> RunDirError {
        let Ok(steps) = self.steps() else { return error };
        match error {
            RunDirError::Damaged { path, reason } => {
                damaged_error(&path, reason + &self.remedy(step, &steps))
            }
            RunDirError::Altered { dir, mut differences } => {
                if let Some(last) = differences.last_mut() {
                    last.reason += &self.remedy(step, &steps);
                }
                RunDirError::Altered { dir, differences }
            }
            error => error,
        }
    }

    fn remedy(&self, step: u64, steps: &[u64]) -> String {
        let dir = self.path(step);
        match steps.iter().rev().find(|&&older| older < step) {
            Some(older) => {
                format!(
                    "; to use step {older} instead, give `--checkpoint {older}` where a command has it, or move `{}` away",
                    dir.display()
                )
            }
            None => format!("; there is no older checkpoint than `{}`", dir.display()),
        }
    }

    /// Reads the state of training of a checkpoint, and no other file of it.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn peek(&self, step: u64) -> Result<TrainerState, RunDirError> {
        read_json(&self.path(step).join(TRAINER))
    }

    /// Returns the best validation, if there was one.
    ///
    /// # Errors
    ///
    /// If `best.json` exists and cannot be read.
    pub fn best(&self) -> Result<Option<Best>, RunDirError> {
        read_json_if_any(&self.dir.join(BEST))
    }

    /// Starts writing the checkpoint of a step.
    ///
    /// # Errors
    ///
    /// If its directory cannot be made.
    pub fn begin(&self, step: u64) -> Result<Draft, RunDirError> {
        let target = self.path(step);
        let dir = temporary(&target);
        remove(&dir)?;
        fs::create_dir_all(&dir).at("make", &dir)?;
        Ok(Draft { dir, target })
    }

    /// Removes incomplete files of a crash and checkpoints of steps after `state`, so that the run can resume there.
    ///
    /// # Errors
    ///
    /// If a file cannot be removed.
    pub fn rewind(&self, state: &TrainerState) -> Result<(), RunDirError> {
        sweep(&self.dir)?;
        self.point_at_best(state)?;
        self.steps()?
            .into_iter()
            .filter(|&step| step > state.step)
            .try_for_each(|step| self.discard(step))
    }

    /// Writes the best step of `state` to `best.json`. Removes all checkpoints but the newest `keep` and, if
    /// `keep_best`, the best.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn prune(
        &self,
        state: &TrainerState,
        keep: usize,
        keep_best: bool,
    ) -> Result<(), RunDirError> {
        self.point_at_best(state)?;
        let best = state.best.filter(|_| keep_best).map(|best| best.step);
        let steps = self.steps()?;
        let old = steps.iter().rev().skip(keep).filter(|step| Some(**step) != best);
        old.into_iter().try_for_each(|&step| self.discard(step))
    }

    fn point_at_best(&self, state: &TrainerState) -> Result<(), RunDirError> {
        let path = self.dir.join(BEST);
        match state.best {
            // An unreadable `best.json` is written again from the state.
            Some(best) if self.best().ok().flatten() == Some(best) => Ok(()),
            Some(best) => write_json(&path, &best).map(drop),
            None => remove(&path),
        }
    }

    /// Renames the checkpoint before removing it, so that a half-removed one is never read as a damaged checkpoint.
    fn discard(&self, step: u64) -> Result<(), RunDirError> {
        let path = self.path(step);
        let doomed = temporary(&path);
        remove(&doomed)?;
        fs::rename(&path, &doomed).at("remove", &path)?;
        remove(&doomed)
    }

    fn path(&self, step: u64) -> PathBuf {
        self.dir.join(format!("step-{step:06}"))
    }
}

impl Checkpoint {
    /// Returns the directory in which a policy was saved.
    ///
    /// # Errors
    ///
    /// If the checkpoint has no such policy.
    pub fn policy(&self, policy: &str) -> Result<PathBuf, RunDirError> {
        let dir = policy_dir(&self.dir, policy);
        if dir.is_dir() { Ok(dir) } else { Err(damaged_error(&dir, "it is missing")) }
    }

    /// Reads a value that was written beside the policies; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, RunDirError> {
        read_json_if_any(&self.dir.join(name))
    }

    /// Returns the path of the checkpoint.
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Draft {
    /// Creates the directory in which a policy is to be saved.
    ///
    /// # Errors
    ///
    /// If it cannot be created.
    pub fn policy(&self, policy: &str) -> Result<PathBuf, RunDirError> {
        let dir = policy_dir(&self.dir, policy);
        fs::create_dir_all(&dir).at("make", &dir)?;
        Ok(dir)
    }

    /// Writes a value beside the policies.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn write<T: Serialize>(&self, name: &str, value: &T) -> Result<(), RunDirError> {
        write_json(&self.file(name), value).map(drop)
    }

    /// Returns the path that the checkpoint will have.
    pub fn path(&self) -> &Path {
        &self.target
    }

    /// Returns the path of a file that belongs to no policy.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes the checkpoint visible.
    ///
    /// # Errors
    ///
    /// If the disk fails; the checkpoint is then not visible.
    pub fn commit(self, state: &TrainerState) -> Result<PathBuf, RunDirError> {
        write_json(&self.dir.join(TRAINER), state)?;
        adopt(&self.dir)?;
        sync_tree(&self.dir)?;
        Manifest::of(&self.dir)?.write(&self.dir)?;
        fs::rename(&self.dir, &self.target).at("write", &self.target)?;
        sync_dir(crate::run_dir::disk::parent(&self.target))?;
        Ok(self.target.clone())
    }
}

/// Removes an uncommitted checkpoint, which takes space on a disk that may be full.
impl Drop for Draft {
    fn drop(&mut self) {
        // Best effort: remaining files are swept when the run is resumed. After a commit, this name does not exist.
        let _ = remove(&self.dir);
    }
}

fn policy_dir(checkpoint: &Path, policy: &str) -> PathBuf {
    checkpoint.join("policies").join(file_name(policy))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn run() -> (tempfile::TempDir, Checkpoints) {
        let run = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::of(run.path());
        fs::create_dir(&checkpoints.dir).unwrap();
        (run, checkpoints)
    }

    fn write(checkpoints: &Checkpoints, step: u64, best: Option<u64>) -> TrainerState {
        let best = best.map(|step| Best { step, exact_match: 0.5 });
        let state = TrainerState { step, seed: 7, best, ..TrainerState::default() };
        let draft = checkpoints.begin(step).unwrap();
        let policy = draft.policy("search/verifier").unwrap();
        fs::write(policy.join("model.safetensors"), format!("weights of {step}")).unwrap();
        draft.commit(&state).unwrap();
        state
    }

    #[test]
    fn a_checkpoint_opens_as_it_was_written() {
        let (_run, checkpoints) = run();
        let state = write(&checkpoints, 10, None);
        let checkpoint = checkpoints.open(Which::Last).unwrap();
        assert_eq!(checkpoint.state, state);
        let weights = checkpoint.policy("search/verifier").unwrap().join("model.safetensors");
        assert_eq!(fs::read_to_string(weights).unwrap(), "weights of 10");
        assert!(checkpoint.policy("search/answerer").is_err());
    }

    #[test]
    fn the_newest_and_the_best_are_kept() {
        let (_run, checkpoints) = run();
        for step in [0, 5, 10, 15] {
            let state = write(&checkpoints, step, (step >= 5).then_some(5));
            checkpoints.prune(&state, 1, true).unwrap();
        }
        assert_eq!(checkpoints.steps().unwrap(), [5, 15]);
        assert_eq!(checkpoints.open(Which::Best).unwrap().state.step, 5);
        assert_eq!(checkpoints.open(Which::Last).unwrap().state.step, 15);
        let error = checkpoints.open(Which::Step(10)).unwrap_err().to_string();
        assert!(error.contains("no checkpoint of step 10; it has step 5, step 15"), "{error}");
    }

    #[test]
    fn a_checkpoint_that_was_never_committed_is_not_seen_and_swept() {
        let (_run, checkpoints) = run();
        let state = write(&checkpoints, 1, None);
        let draft = checkpoints.begin(2).unwrap();
        draft.policy("small").unwrap();
        std::mem::forget(draft);
        assert_eq!(checkpoints.steps().unwrap(), [1]);
        checkpoints.rewind(&state).unwrap();
        assert_eq!(entries(&checkpoints.dir).unwrap(), [checkpoints.path(1)]);
        write(&checkpoints, 2, None);
        assert_eq!(checkpoints.steps().unwrap(), [1, 2]);
    }

    #[test]
    fn a_draft_that_fails_leaves_nothing() {
        let (_run, checkpoints) = run();
        let draft = checkpoints.begin(2).unwrap();
        draft.policy("small").unwrap();
        drop(draft);
        assert!(entries(&checkpoints.dir).unwrap().is_empty());
    }

    #[test]
    fn a_damaged_checkpoint_is_refused_by_name_with_a_way_out() {
        let (_run, checkpoints) = run();
        write(&checkpoints, 1, None);
        write(&checkpoints, 2, None);
        let weights = checkpoints.path(2).join("policies/search%2Fverifier/model.safetensors");
        fs::write(&weights, "WEIGHTS of 2").unwrap();
        let error = checkpoints.open(Which::Last).unwrap_err().to_string();
        assert!(
            error.contains("search%2Fverifier/model.safetensors") && error.contains("step 1"),
            "{error}"
        );
        fs::remove_dir_all(checkpoints.path(2)).unwrap();
        assert_eq!(checkpoints.open(Which::Last).unwrap().state.step, 1);
    }

    #[test]
    fn rewinding_restores_the_best_of_the_state() {
        let (_run, checkpoints) = run();
        let first = write(&checkpoints, 1, None);
        let second = write(&checkpoints, 2, Some(2));
        checkpoints.prune(&second, 2, true).unwrap();
        assert!(checkpoints.best().unwrap().is_some());
        checkpoints.rewind(&first).unwrap();
        assert_eq!(checkpoints.best().unwrap(), None);
        assert_eq!(checkpoints.steps().unwrap(), [1]);
    }
}

//! What is written into a run directory while its run goes on, and what the manifest vouches for.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::disk::{
    entries, name, parent, read_json, remove, step_of, sweep, write_atomic, write_json,
};
use super::error::{At, RunDirError};
use super::journal::GROWING;
use super::manifest::{Difference, FileHash, Manifest};
use super::rollouts::encode;
use super::{CONFIG, Journal, Origin, PROVENANCE, RESOLVED, RunDir, SUMMARY, resolved};
use crate::metrics::Metrics;
use crate::trajectory::Episode;

/// Evaluations that are not of a step.
const NAMED: [&str; 4] = ["before", "before-greedy", "after", "after-greedy"];

/// What a file of a run directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// What the run started from.
    Origin,
    /// Of this step.
    Step(u64),
    /// Of the evaluation before training.
    Before,
    /// Of the evaluation after training.
    After,
    /// Below `checkpoints`, where every checkpoint vouches for itself.
    Checkpoint,
    /// It is complete only when the run has ended.
    End,
}

impl Kind {
    /// The kind of a file by its path in the directory.
    pub(super) fn of(file: &str) -> Self {
        let name = file.rsplit('/').next().unwrap_or_default();
        match file.split('/').next() {
            _ if [CONFIG, RESOLVED, PROVENANCE].contains(&file) => Self::Origin,
            Some("checkpoints") => Self::Checkpoint,
            Some("evaluations") if name.starts_with("before") => Self::Before,
            Some("evaluations") if name.starts_with("after") => Self::After,
            Some("rollouts" | "evaluations") => {
                step_of(Path::new(file)).map_or(Self::End, Self::Step)
            }
            _ => Self::End,
        }
    }

    /// The file is still as it is when the run has gone back to a step, and does or does not go on from there.
    fn lasts(self, step: u64, goes_on: bool) -> bool {
        match self {
            Self::Origin | Self::Before => true,
            Self::Step(of) => of <= step,
            Self::After => !goes_on,
            Self::Checkpoint | Self::End => false,
        }
    }
}

/// Whether a file holds episodes, which no other file needs.
fn is_episodes(file: &str) -> bool {
    file.ends_with(".jsonl.zst")
}

impl RunDir {
    /// The rollouts of a step.
    pub fn rollouts(&self, step: u64) -> PathBuf {
        self.path.join(rollouts(step))
    }

    /// The report of an evaluation (`before`, `after`).
    pub fn evaluation(&self, name: &str) -> PathBuf {
        self.path.join(format!("evaluations/{name}.json"))
    }

    /// The episodes of an evaluation: `before` and `after`, the same with `-greedy`, and `step-000010` for a validation.
    pub fn evaluation_episodes(&self, name: &str) -> PathBuf {
        self.path.join(format!("evaluations/{name}.jsonl.zst"))
    }

    /// What came of the run.
    pub fn summary(&self) -> PathBuf {
        self.path.join(SUMMARY)
    }

    /// The steps there are rollouts of, ascending.
    ///
    /// # Errors
    ///
    /// If the directory cannot be listed.
    pub fn rollout_steps(&self) -> Result<Vec<u64>, RunDirError> {
        let mut steps: Vec<u64> =
            entries(&self.path.join("rollouts"))?.iter().filter_map(|path| step_of(path)).collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// The metrics of every step, by step; those of the evaluation before training are step 0's.
    ///
    /// # Errors
    ///
    /// If `metrics.jsonl` cannot be read.
    pub fn metrics(&self) -> Result<BTreeMap<u64, Metrics>, RunDirError> {
        Journal::metrics(&self.path)
    }

    /// Writes the rollouts of a step.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn write_rollouts(&mut self, step: u64, episodes: &[Episode]) -> Result<(), RunDirError> {
        self.write_episodes(rollouts(step), episodes)
    }

    /// Writes the episodes of an evaluation.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn write_evaluation_episodes(
        &mut self,
        name: &str,
        episodes: &[Episode],
    ) -> Result<(), RunDirError> {
        self.write_episodes(format!("evaluations/{name}.jsonl.zst"), episodes)
    }

    fn write_episodes(&mut self, file: String, episodes: &[Episode]) -> Result<(), RunDirError> {
        let path = self.path.join(&file);
        let bytes = encode(&path, episodes)?;
        write_atomic(&path, &bytes)?;
        self.manifest.files.insert(file, FileHash::of(&bytes));
        Ok(())
    }

    /// Writes the report of an evaluation, and vouches for it.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn write_evaluation<T: Serialize>(
        &mut self,
        name: &str,
        report: &T,
    ) -> Result<(), RunDirError> {
        let bytes = write_json(&self.evaluation(name), report)?;
        self.manifest.files.insert(format!("evaluations/{name}.json"), FileHash::of(&bytes));
        self.vouch()
    }

    /// Reads the report of an evaluation; `None` if it was not made.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn read_evaluation<T: DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<Option<T>, RunDirError> {
        let path = self.evaluation(name);
        if path.exists() { read_json(&path).map(Some) } else { Ok(None) }
    }

    /// Writes what is complete by now into the manifest.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn vouch(&self) -> Result<(), RunDirError> {
        self.manifest.write(&self.path)
    }

    /// How many files the manifest vouches for.
    pub fn listed(&self) -> usize {
        self.manifest.files.len()
    }

    /// Everything that the manifest vouches for and that is not as it was written, up to `step`. The newest checkpoint is
    /// verified when it is opened; of the others only the list of their files is.
    ///
    /// # Errors
    ///
    /// If a file is there and cannot be read.
    pub fn differences(&self, step: u64) -> Result<Vec<Difference>, RunDirError> {
        self.manifest.differences(&self.path, |file| match Kind::of(file) {
            Kind::Step(of) => of <= step,
            // Who removes a checkpoint wants to go on from another.
            Kind::Checkpoint => {
                let path = self.path.join(file);
                path.exists() || parent(&path).join("trainer.json").exists()
            }
            _ => true,
        })
    }

    /// Refuses a directory in which something up to `step` is not as it was written. Files of episodes may be missing where
    /// `missing` allows it; these are forgotten.
    ///
    /// # Errors
    ///
    /// Every file that differs.
    pub fn verify(&mut self, step: u64, missing: Missing) -> Result<Vec<PathBuf>, RunDirError> {
        let mut differences = self.differences(step)?;
        let mut gone = Vec::new();
        if missing == Missing::Episodes {
            let is_gone =
                |Difference { path, .. }: &Difference| !path.exists() && is_episodes(&name(path));
            gone = differences.extract_if(.., |difference| is_gone(difference)).collect();
        }
        RunDirError::unless_none(&self.path, differences)?;
        let gone: Vec<PathBuf> = gone.into_iter().map(|difference| difference.path).collect();
        let base = self.path.clone();
        self.manifest.files.retain(|file, _| !gone.contains(&base.join(file)));
        Ok(gone)
    }

    /// Prepares the directory for going on after `step`, perhaps with what may change: what a crash left and what belongs
    /// to later steps is removed, and so is what the manifest does not vouch for.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn reopen(&mut self, origin: &Origin, step: u64) -> Result<(), RunDirError> {
        let goes_on = origin.config.steps > step;
        // First the manifest, so that whatever is removed or replaced next is never missed.
        self.manifest.files.retain(|file, _| Kind::of(file).lasts(step, goes_on));
        let changed = self.announce(origin)?;
        self.vouch()?;
        for part in ["", "rollouts", "evaluations"] {
            sweep(&self.path.join(part))?;
        }
        remove(&self.summary())?;
        for part in ["rollouts", "evaluations"] {
            for path in entries(&self.path.join(part))? {
                let file = format!("{part}/{}", name(&path));
                if is_ours(&path) && !self.manifest.files.contains_key(&file) {
                    remove(&path)?;
                }
            }
        }
        for (file, bytes) in &changed {
            write_atomic(&self.path.join(file), bytes)?;
        }
        if !changed.is_empty() {
            self.manifest.replaced.clear();
            self.vouch()?;
        }
        Ok(())
    }

    /// Lists what of the origin changes, with the old and the new content, in the manifest.
    fn announce(&mut self, origin: &Origin) -> Result<Vec<(&'static str, Vec<u8>)>, RunDirError> {
        let origin = origin.placed(&self.path)?;
        let mut provenance = self.origin()?.provenance;
        provenance.data = origin.provenance.data.clone();
        let encode = |reason: serde_json::Error| RunDirError::Encode {
            path: self.path.join(PROVENANCE),
            reason: reason.to_string(),
        };
        let mut json = serde_json::to_string_pretty(&provenance).map_err(encode)?;
        json.push('\n');
        let now = [
            (CONFIG, origin.given.into_bytes()),
            (RESOLVED, resolved(&origin.config, &self.path)?.into_bytes()),
            (PROVENANCE, json.into_bytes()),
        ];
        let mut changed = Vec::new();
        for (file, bytes) in now {
            let path = self.path.join(file);
            let there = fs::read(&path).at("read", &path)?;
            self.manifest.files.insert(file.to_owned(), FileHash::of(&bytes));
            self.manifest.replaced.remove(file);
            if there != bytes {
                self.manifest.replaced.insert(file.to_owned(), FileHash::of(&there));
                changed.push((file, bytes));
            }
        }
        Ok(changed)
    }

    /// Lists every file of the run in the manifest, `growing` as their writer knows them, and verifies what was listed
    /// before. Called when nothing is being written any more.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or is not as it was written, or the manifest cannot be written.
    pub fn seal(
        &mut self,
        growing: BTreeMap<String, FileHash>,
        missing: Missing,
    ) -> Result<(), RunDirError> {
        self.manifest.files.extend(growing);
        if let Ok(hash) = FileHash::read(&self.summary()) {
            self.manifest.files.insert(SUMMARY.to_owned(), hash);
        }
        let checkpoints = Manifest::of(&self.path.join("checkpoints"))?;
        let below = |(file, hash)| (format!("checkpoints/{file}"), hash);
        self.manifest.files.extend(checkpoints.files.into_iter().map(below));
        self.verify(u64::MAX, missing)?;
        self.vouch()
    }

    /// Whether the manifest vouches for files that are complete only when a run has ended.
    pub fn is_sealed(&self) -> bool {
        GROWING.iter().all(|file| self.manifest.files.contains_key(*file))
    }
}

/// What may be missing in a run directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Missing {
    /// Nothing.
    #[default]
    Nothing,
    /// Episodes: rollouts, and those of evaluations.
    Episodes,
}

fn rollouts(step: u64) -> String {
    format!("rollouts/step-{step:06}.jsonl.zst")
}

/// Whether a path in `rollouts` or `evaluations` has a name that runs give.
fn is_ours(path: &Path) -> bool {
    let name = name(path);
    let stem = name.strip_suffix(".jsonl.zst").or_else(|| name.strip_suffix(".json"));
    stem.is_some_and(|stem| NAMED.contains(&stem) || step_of(path).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_a_run_has_its_kind() {
        let kinds = [
            ("resolved.toml", Kind::Origin),
            ("metrics.jsonl", Kind::End),
            ("summary.json", Kind::End),
            ("rollouts/step-000012.jsonl.zst", Kind::Step(12)),
            ("evaluations/step-000010.jsonl.zst", Kind::Step(10)),
            ("evaluations/before-greedy.jsonl.zst", Kind::Before),
            ("evaluations/after.json", Kind::After),
            ("checkpoints/best.json", Kind::Checkpoint),
            ("checkpoints/step-000010/manifest.json", Kind::Checkpoint),
        ];
        for (file, kind) in kinds {
            assert_eq!(Kind::of(file), kind, "{file}");
        }
    }
}

//! Files that are written into a run directory during a run, and their entries in the manifest.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::clock::CLOCK;
use super::disk::{
    adopt, create_private_dir, entries, json_bytes, name, parent, remove, step_of, sweep,
    write_atomic, write_json,
};
use super::error::{At, RunDirError};
use super::format::ChangedFile;
use super::journal::METRICS;
use super::lines::EpisodePosition;
use super::manifest::{FileHash, Manifest};
use super::rollouts::{RolloutWriter, growing, is_growing};
use super::tokenizers::TOKENIZERS;
use super::{
    CONFIG, Journal, Origin, PLAN, PROGRESS, PROVENANCE, RESOLVED, RunDir, SUMMARY, resolved,
};
use crate::metrics::Metrics;

/// End of the names of files of tokens.
const TOKENS: &str = ".tokens.safetensors.zst";
/// Evaluations that belong to no step.
const NAMED: [&str; 4] = ["before", "before-greedy", "after", "after-greedy"];

/// Kind of a file of a run directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Part of the run's origin.
    Origin,
    /// Belongs to this step.
    Step(u64),
    /// Belongs to the evaluation before training.
    Before,
    /// Belongs to the evaluation after training.
    After,
    /// Below `checkpoints`: each checkpoint has its own manifest.
    Checkpoint,
    /// Complete only when the run has ended.
    End,
}

impl Kind {
    /// Returns the kind of a file by its path in the directory.
    pub(super) fn of(file: &str) -> Self {
        let name = file.rsplit('/').next().unwrap_or_default();
        match file.split('/').next() {
            _ if [CONFIG, RESOLVED, PROVENANCE].contains(&file) => Self::Origin,
            Some("checkpoints") => Self::Checkpoint,
            Some("evaluations") if name.starts_with("before") => Self::Before,
            Some("evaluations") if name.starts_with("after") => Self::After,
            Some("rollouts" | "samples" | CLOCK | "evaluations") => {
                step_of(Path::new(file)).map_or(Self::End, Self::Step)
            }
            _ => Self::End,
        }
    }

    /// Returns true if the file stays valid when the run returns to `step`; `goes_on` is true if it then continues.
    fn lasts(self, step: u64, goes_on: bool) -> bool {
        match self {
            Self::Origin | Self::Before => true,
            Self::Step(of) => of <= step,
            Self::After => !goes_on,
            Self::Checkpoint | Self::End => false,
        }
    }
}

/// Returns true if a file holds episodes or samples. No other file depends on it, but for the episodes that a replay buffer
/// refers to.
fn is_episodes(file: &str) -> bool {
    file.ends_with(".jsonl.zst") || file.ends_with(TOKENS)
}

impl RunDir {
    /// Returns the path of the rollouts of a step.
    pub fn rollouts(&self, step: u64) -> PathBuf {
        rollouts_of(&self.path, step)
    }

    /// Returns the path of the rollouts of a step while its episodes are being run, for
    /// [`read_ended_rollouts`](super::read_ended_rollouts).
    pub fn growing_rollouts(&self, step: u64) -> PathBuf {
        growing(&self.rollouts(step))
    }

    /// Returns the path of the summary of the run.
    pub fn summary(&self) -> PathBuf {
        self.path.join(SUMMARY)
    }

    /// Returns the steps that have rollouts, ascending.
    ///
    /// # Errors
    ///
    /// If the directory cannot be listed.
    pub fn rollout_steps(&self) -> Result<Vec<u64>, RunDirError> {
        let files = entries(&self.path.join("rollouts"))?;
        let whole = files.iter().filter(|path| !is_growing(path));
        let mut steps: Vec<u64> = whole.filter_map(|path| step_of(path)).collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// Returns the metrics by step. Step 0 holds those of the evaluation before training.
    ///
    /// # Errors
    ///
    /// If `metrics.jsonl` cannot be read.
    pub fn metrics(&self) -> Result<BTreeMap<u64, Metrics>, RunDirError> {
        Journal::metrics(&self.path)
    }

    /// Starts writing the rollouts of a step.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn begin_rollouts(&self, step: u64) -> Result<RolloutWriter, RunDirError> {
        RolloutWriter::create(&self.rollouts(step))
    }

    /// Completes the rollouts of a step, lists them in the manifest, and returns the place of each episode in the file.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn list_rollouts(
        &mut self,
        step: u64,
        mut out: RolloutWriter,
    ) -> Result<Vec<EpisodePosition>, RunDirError> {
        self.manifest.files.insert(rollouts(step), out.finish()?);
        Ok(out.into_places())
    }

    /// Writes the plan in numbers. It follows from the configuration, so it is listed in the manifest only at the end.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn write_plan(&self, plan: &serde_json::Value) -> Result<(), RunDirError> {
        write_json(&self.path.join(PLAN), plan).map(drop)
    }

    /// Removes the progress of a process that has ended.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn remove_progress(&self) -> Result<(), RunDirError> {
        remove(&self.path.join(PROGRESS))
    }

    /// Writes all files that are complete now into the manifest.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn vouch(&self) -> Result<(), RunDirError> {
        self.manifest.write(&self.path)
    }

    /// Returns the number of files in the manifest.
    pub fn listed_files(&self) -> usize {
        self.manifest.files.len()
    }

    /// Returns all files up to `step` that differ from the manifest. The newest checkpoint is verified when it is
    /// opened; of the others, only the lists of files are verified.
    ///
    /// # Errors
    ///
    /// If a file exists and cannot be read.
    pub fn differences(&self, step: u64) -> Result<Vec<ChangedFile>, RunDirError> {
        self.manifest.differences(&self.path, |file| match Kind::of(file) {
            Kind::Step(of) => of <= step,
            // A missing checkpoint is allowed: removing one is how to resume from an earlier one.
            Kind::Checkpoint => {
                let path = self.path.join(file);
                path.exists() || parent(&path).join("trainer.json").exists()
            }
            _ => true,
        })
    }

    /// Fails if a file up to `step` differs from the manifest. Files of episodes may be missing if `missing` allows it;
    /// they are removed from the manifest.
    ///
    /// # Errors
    ///
    /// Every file that differs.
    pub fn verify(&mut self, step: u64, missing: Missing) -> Result<Vec<PathBuf>, RunDirError> {
        let mut differences = self.differences(step)?;
        let gone: Vec<PathBuf> = differences
            .extract_if(.., |ChangedFile { path, .. }| !path.exists() && is_episodes(&name(path)))
            .map(|difference| difference.path)
            .collect();
        if let ([first, others @ ..], Missing::Nothing) = (gone.as_slice(), missing) {
            let reason = match others {
                [] => "it is missing; `--allow-missing` continues without it".to_owned(),
                others => format!(
                    "it and {} other files of episodes are missing; `--allow-missing` continues without them",
                    others.len()
                ),
            };
            differences.insert(0, ChangedFile { path: first.clone(), reason });
        }
        RunDirError::unless_none(&self.path, differences)?;
        let base = self.path.clone();
        self.manifest.files.retain(|file, _| !gone.contains(&base.join(file)));
        Ok(gone)
    }

    /// Prepares the directory for resuming after `step`; `goes_on` is true if steps follow. Removes incomplete files, files of
    /// later steps, and files that are not in the manifest.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn return_to(&mut self, step: u64, goes_on: bool) -> Result<(), RunDirError> {
        // The manifest is written first, so that a file that is removed next is never reported as missing.
        self.manifest.files.retain(|file, _| Kind::of(file).lasts(step, goes_on));
        self.vouch()?;
        self.make_dirs()?;
        for part in ["", "rollouts", "samples", TOKENIZERS, CLOCK, "evaluations"] {
            sweep(&self.path.join(part))?;
        }
        remove(&self.summary())?;
        self.remove_progress()?;
        for part in ["rollouts", "samples", CLOCK, "evaluations"] {
            for path in entries(&self.path.join(part))? {
                let file = format!("{part}/{}", name(&path));
                if is_ours(&path) && !self.manifest.files.contains_key(&file) {
                    remove(&path)?;
                }
            }
        }
        Ok(())
    }

    /// Replaces the origin of the run by that of a resume, which may have other settings.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn change_origin(&mut self, origin: &Origin) -> Result<(), RunDirError> {
        let changed = self.announce(origin)?;
        // The manifest is written first, so that a file that is replaced next is never reported as damaged.
        self.vouch()?;
        for (file, bytes) in &changed {
            write_atomic(&self.path.join(file), bytes)?;
        }
        if !changed.is_empty() {
            self.manifest.replaced.clear();
            self.vouch()?;
        }
        Ok(())
    }

    /// Creates the directories that a run of an older version does not have.
    fn make_dirs(&self) -> Result<(), RunDirError> {
        for part in ["samples", TOKENIZERS, CLOCK] {
            let dir = self.path.join(part);
            if !dir.is_dir() {
                create_private_dir(&dir).at("make", &dir)?;
                adopt(&dir)?;
            }
        }
        Ok(())
    }

    /// Lists the changed files of the origin in the manifest, with both the old and the new content.
    fn announce(&mut self, origin: &Origin) -> Result<Vec<(&'static str, Vec<u8>)>, RunDirError> {
        let origin = origin.placed_in(&self.path)?;
        let mut provenance = self.origin()?.provenance;
        provenance.data = origin.provenance.data.clone();
        let now = [
            (CONFIG, origin.given.into_bytes()),
            (RESOLVED, resolved(&origin.config, &self.path)?.into_bytes()),
            (PROVENANCE, json_bytes(&self.path.join(PROVENANCE), &provenance)?),
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

    /// Lists every file of the run in the manifest, with the given hashes of `growing` files, and verifies the files
    /// that were listed before. Called when no file is being written.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or has changed, or the manifest cannot be written.
    pub fn seal(
        &mut self,
        growing: BTreeMap<String, FileHash>,
        missing: Missing,
    ) -> Result<(), RunDirError> {
        self.manifest.files.extend(growing);
        for file in [SUMMARY, PLAN] {
            if let Ok(hash) = FileHash::read(&self.path.join(file)) {
                self.manifest.files.insert(file.to_owned(), hash);
            }
        }
        self.list_tokenizers()?;
        for (file, hash) in Manifest::of(&self.path.join("checkpoints"))?.files {
            self.manifest.files.insert(format!("checkpoints/{file}"), hash);
        }
        self.verify(u64::MAX, missing)?;
        self.vouch()
    }

    /// Returns true if the manifest lists files that are complete only when a run has ended.
    pub fn is_sealed(&self) -> bool {
        self.manifest.files.contains_key(METRICS)
    }
}

/// Files that may be missing in a run directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Missing {
    /// Nothing.
    #[default]
    Nothing,
    /// Episodes: rollouts, and those of evaluations.
    Episodes,
}

/// Returns the path of the rollouts of a step of the run in a directory.
pub(crate) fn rollouts_of(run: &Path, step: u64) -> PathBuf {
    run.join(rollouts(step))
}

fn rollouts(step: u64) -> String {
    format!("rollouts/step-{step:06}.jsonl.zst")
}

/// Returns true if a path in `rollouts`, `samples` or `evaluations` has a name that runs write.
fn is_ours(path: &Path) -> bool {
    let name = name(path);
    let ends = [TOKENS, ".jsonl.zst", ".json"].into_iter();
    let stem = ends.filter_map(|end| name.strip_suffix(end)).next();
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
            ("samples/step-000010.jsonl.zst", Kind::Step(10)),
            ("samples/step-000010.tokens.safetensors.zst", Kind::Step(10)),
            ("tokenizers/small.json.zst", Kind::End),
            ("clock/step-000010.jsonl.zst", Kind::Step(10)),
            ("spans.jsonl", Kind::End),
            ("episodes.jsonl", Kind::End),
            ("plan.json", Kind::End),
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

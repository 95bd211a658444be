//! Evaluations of a run: reports in `evaluations/<name>.json`, episodes in `evaluations/<name>.jsonl.zst`.

use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::disk::{read_json_if_any, write_json};
use super::error::RunDirError;
use super::lines::EpisodePosition;
use super::rollouts::encode;
use super::{FileHash, RunDir};
use crate::trajectory::Episode;

impl RunDir {
    /// Returns the path of the report of an evaluation (`before`, `after`).
    pub fn evaluation(&self, name: &str) -> PathBuf {
        self.path.join(format!("evaluations/{name}.json"))
    }

    /// Returns the path of the episodes of an evaluation: `before` and `after`, the same with `-greedy`, and
    /// `step-000010` for a validation.
    pub fn evaluation_episodes(&self, name: &str) -> PathBuf {
        self.path.join(format!("evaluations/{name}.jsonl.zst"))
    }

    /// Writes the episodes of an evaluation, and returns the place of each episode in the file.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn write_evaluation_episodes(
        &mut self,
        name: &str,
        episodes: &[Episode],
    ) -> Result<Vec<EpisodePosition>, RunDirError> {
        let file = format!("evaluations/{name}.jsonl.zst");
        let (bytes, places) = encode(&self.path.join(&file), episodes)?;
        self.write_listed(file, &bytes)?;
        Ok(places)
    }

    /// Writes the report of an evaluation, and lists it in the manifest.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn write_evaluation<T: Serialize>(
        &mut self,
        name: &str,
        report: &T,
    ) -> Result<(), RunDirError> {
        self.write_validation(name, report)?;
        self.vouch()
    }

    /// Writes the report of a validation between steps.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn write_validation<T: Serialize>(
        &mut self,
        name: &str,
        report: &T,
    ) -> Result<(), RunDirError> {
        let bytes = write_json(&self.evaluation(name), report)?;
        self.manifest.files.insert(format!("evaluations/{name}.json"), FileHash::of(&bytes));
        Ok(())
    }

    /// Reads the report of an evaluation; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn read_evaluation<T: DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<Option<T>, RunDirError> {
        read_json_if_any(&self.evaluation(name))
    }
}

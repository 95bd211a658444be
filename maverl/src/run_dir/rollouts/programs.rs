//! Logs of programs that played episodes, beside the rollouts of their step.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::run_dir::disk::{create_private_dir, name, options, parent};
use crate::run_dir::error::{At, RunDirError};
use crate::run_dir::packed::LEVEL;
use crate::trajectory::Episode;

/// Writer of the logs of a step: `rollouts/programs/step-000012.log.zst`, a frame for each episode. It is no part of the
/// record of the run, so the manifest does not list it.
pub(super) struct ProgramLogs {
    path: PathBuf,
    file: Option<File>,
}

impl ProgramLogs {
    /// Creates the writer of the logs beside a file of rollouts, and removes those of an earlier attempt.
    pub(super) fn beside_rollouts(rollouts: &Path) -> Result<Self, RunDirError> {
        let stem = name(rollouts);
        let stem = stem.split('.').next().unwrap_or(&stem);
        let path = parent(rollouts).join("programs").join(format!("{stem}.log.zst"));
        if path.exists() {
            fs::remove_file(&path).at("remove", &path)?;
        }
        Ok(Self { path, file: None })
    }

    /// Creates the writer beside no file, to which nothing is appended.
    pub(super) fn beside_nothing() -> Self {
        Self { path: PathBuf::new(), file: None }
    }

    /// Appends the log of an episode, if it has one.
    pub(super) fn append(&mut self, episode: &Episode) -> Result<(), RunDirError> {
        if episode.log.is_empty() {
            return Ok(());
        }
        let Episode { task, index, log, .. } = episode;
        let text = format!("== {} {index}\n{}\n", task.id, log.trim_end());
        let frame = zstd::encode_all(text.as_bytes(), LEVEL).at("compress", &self.path)?;
        if self.file.is_none() {
            let dir = parent(&self.path);
            if !dir.is_dir() {
                create_private_dir(dir).at("make", dir)?;
            }
            let file = options(dir).create(true).truncate(true).open(&self.path);
            self.file = Some(file.at("make", &self.path)?);
        }
        match &mut self.file {
            Some(file) => file.write_all(&frame).at("append to", &self.path),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::run_dir::tests::episode;

    #[test]
    fn logs_are_beside_the_rollouts_of_their_step_and_only_of_programs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step-000012.jsonl.zst");
        let mut logs = ProgramLogs::beside_rollouts(&path).unwrap();
        let mut one = episode("facts/1", 2, true, 1);
        logs.append(&one).unwrap();
        assert!(!dir.path().join("programs").exists());
        one.log = "hello\n".to_owned();
        logs.append(&one).unwrap();
        logs.append(&one).unwrap();
        let written = dir.path().join("programs/step-000012.log.zst");
        let text = zstd::decode_all(File::open(&written).unwrap()).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "== facts/1 2\nhello\n".repeat(2));
        ProgramLogs::beside_rollouts(&path).unwrap();
        assert!(!written.exists());
    }
}

//! The newest checkpoint of a run: opened, or written by a thread beside the run.

use std::path::Path;
use std::thread::{Builder, JoinHandle};

use crate::checkpoint::{Checkpoint, Checkpoints, Which};
use crate::run_dir::disk::read_json_if_any;
use crate::run_dir::error::At;
use crate::run_dir::{RunDir, RunDirError};
use crate::train::error::TrainError;
use crate::train::run::summary::RunSummary;

/// Thread that writes a part of a checkpoint.
type Writing = JoinHandle<Result<(), TrainError>>;

/// Checkpoint that threads write and complete, one after the other.
#[derive(Debug, Default)]
pub(super) struct PendingCheckpoint {
    /// The last thread, which waits for those before.
    thread: Option<Writing>,
}

impl PendingCheckpoint {
    /// Starts a thread that writes a part of a checkpoint of this path after the parts before, unless these fail.
    pub(super) fn start(
        &mut self,
        checkpoint: &Path,
        write: impl FnOnce() -> Result<(), TrainError> + Send + 'static,
    ) -> Result<(), RunDirError> {
        let before = self.thread.take();
        let writing = move || before.map_or(Ok(()), join).and_then(|()| write());
        let spawned = Builder::new().name("checkpoint".to_owned()).spawn(writing);
        self.thread = Some(spawned.at("start a thread for", checkpoint)?);
        Ok(())
    }

    /// Returns the error of threads that have ended.
    pub(super) fn error_so_far(&mut self) -> Result<(), TrainError> {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) { self.wait() } else { Ok(()) }
    }

    /// Waits for the threads.
    pub(super) fn wait(&mut self) -> Result<(), TrainError> {
        self.thread.take().map_or(Ok(()), join)
    }
}

/// Waits for a thread, and returns its result.
fn join(thread: Writing) -> Result<(), TrainError> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Waits for the thread of a run that ends with another error. The lock of the run lasts as long.
impl Drop for PendingCheckpoint {
    fn drop(&mut self) {
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Opens the newest checkpoint; `None` if the run was killed before its first.
pub(super) fn last(
    dir: &RunDir,
    checkpoints: &Checkpoints,
) -> Result<Option<Checkpoint>, RunDirError> {
    if checkpoints.steps()?.is_empty() && begins_again(dir)? {
        return Ok(None);
    }
    checkpoints.open(Which::Last).map(Some)
}

/// Returns true if a run without checkpoints was killed before its first. One with rows was damaged, because checkpoint 0 is older
/// than the first row; a run of one step does not have it, and its rows may be older than its only checkpoint.
fn begins_again(dir: &RunDir) -> Result<bool, RunDirError> {
    if !dir.has_rows() {
        return Ok(true);
    }
    let ended: Option<RunSummary> = read_json_if_any(&dir.summary())?;
    let trained = ended.is_some_and(|summary| summary.steps > 0);
    Ok(dir.origin()?.config.steps == 1 && !trained)
}

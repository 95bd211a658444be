//! Batches that were played, and their files in a checkpoint: those of the batches that were in flight at its step.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};

use crate::checkpoint::{Checkpoint, Draft};
use crate::run_dir::disk::{entries, name, read_json, write_json};
use crate::run_dir::error::At;
use crate::run_dir::{RunDirError, read_rollouts, write_rollouts};
use crate::train::step::players::collect::PlayedEpisodes;

/// Directory of the batches in a checkpoint.
const PENDING: &str = "pending";

/// Episodes of a step, as they were played.
#[derive(Debug)]
pub(crate) struct PlayedBatch {
    /// Number of steps that their weights had learned.
    pub(crate) version: u64,
    /// Episodes; those of a checkpoint have no times.
    pub(crate) played: PlayedEpisodes,
}

/// Data of a batch beside the record of its episodes.
#[derive(Serialize, Deserialize)]
struct PendingBatch {
    step: u64,
    /// Number of steps that the weights had learned.
    version: u64,
    /// Output of the program of each episode; empty if there is none.
    logs: Vec<String>,
}

/// Writes the batch of a step.
pub(super) fn write_batch(
    draft: &Draft,
    step: u64,
    batch: &PlayedBatch,
) -> Result<(), RunDirError> {
    let dir = draft.file(PENDING);
    fs::create_dir_all(&dir).at("make", &dir)?;
    write_rollouts(&dir.join(format!("step-{step:06}.jsonl.zst")), &batch.played.episodes)?;
    let logs = batch.played.episodes.iter().map(|episode| episode.log.clone());
    let logs = if logs.clone().all(|log| log.is_empty()) { Vec::new() } else { logs.collect() };
    let beside = PendingBatch { step, version: batch.version, logs };
    write_json(&dir.join(format!("step-{step:06}.json")), &beside).map(drop)
}

/// Reads the batches of a checkpoint, by step; none if none was in flight.
pub(super) fn read_batches(
    checkpoint: &Checkpoint,
) -> Result<BTreeMap<u64, PlayedBatch>, RunDirError> {
    let dir = checkpoint.path().join(PENDING);
    let mut batches = BTreeMap::new();
    if !dir.is_dir() {
        return Ok(batches);
    }
    for path in entries(&dir)?.iter().filter(|path| name(path).ends_with(".json")) {
        let PendingBatch { step, version, logs } = read_json(path)?;
        let mut episodes = read_rollouts(&path.with_extension("jsonl.zst"))?;
        for (episode, log) in episodes.iter_mut().zip(logs) {
            episode.log = log;
        }
        let played = PlayedEpisodes { episodes, ..PlayedEpisodes::default() };
        batches.insert(step, PlayedBatch { version, played });
    }
    Ok(batches)
}

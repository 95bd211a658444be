//! Most probable tokens at each sampled token of an episode: what `maverl replay --top` writes.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::disk::{read_json, write_json};
use super::error::RunDirError;

/// Likeliest tokens of the turns of an episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopRecord {
    /// Name of the episode, `STEP/TASK/INDEX`.
    pub episode: String,
    /// Maximum number of tokens at each place.
    pub top: usize,
    /// Turns that have tokens.
    pub turns: Vec<TopTurn>,
}

/// Likeliest tokens of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopTurn {
    /// Index of the turn in the episode.
    pub turn: usize,
    /// For each sampled token: ids and log-probs of the likeliest tokens at its place, descending.
    pub tokens: Vec<Vec<(u32, f32)>>,
}

impl TopRecord {
    /// Writes the record as JSON.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), RunDirError> {
        write_json(path, self).map(drop)
    }
}

/// Reads a record of likeliest tokens.
///
/// # Errors
///
/// If the file cannot be read.
pub fn read_top(path: &Path) -> Result<TopRecord, RunDirError> {
    read_json(path)
}

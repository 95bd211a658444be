//! Times of a run: those of the turns of a step in `clock/step-000012.jsonl.zst`, and rows of `spans.jsonl`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::RunDir;
use super::error::{At, RunDirError};
use super::packed::{pack_lines, read_lines};
use crate::trajectory::Seat;

/// Name of the directory of the times of turns.
pub(super) const CLOCK: &str = "clock";

/// Times of a turn, a line `[episode, turn, seat, asked, ended, began]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnTime(
    /// Index of the episode in the rollouts of the step.
    pub usize,
    /// Index of the turn in the episode.
    pub usize,
    /// Seat that was asked.
    pub Seat,
    /// Milliseconds from the start of the rollout until the seat was asked.
    pub u64,
    /// Milliseconds from the start of the rollout until its reply was there.
    pub u64,
    /// Milliseconds from the start of the rollout until the engine began with its prompt: before, the request waited. `None`
    /// if no engine of the run replied, or an older version wrote the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub Option<u64>,
);

/// State of a worker group at a time, `[at, tokens, used, blocks]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WorkerSample(
    /// Seconds from the start of the rollout.
    pub f64,
    /// Tokens that the policy has sampled since then.
    pub u64,
    /// Blocks of the key-value cache that running requests hold.
    pub usize,
    /// All blocks of the cache.
    pub usize,
);

/// A part of a step, `[name, policy, begin, seconds]`: its beginning is that of the step plus `begin`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpanRecord(pub String, pub Option<String>, pub f64, pub f64);

/// A row of `spans.jsonl`. Spans without a policy follow each other and fill the step; those of a policy are inside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpanRow {
    /// Number of the step, from 1.
    pub step: u64,
    /// Begin of the step in seconds since 1970: the end of the step before.
    pub start: f64,
    /// Parts of the step.
    pub spans: Vec<SpanRecord>,
    /// Samples of each policy during the rollout, at most 64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub samples: BTreeMap<String, Vec<WorkerSample>>,
}

/// Reads the times of the turns of a step.
///
/// # Errors
///
/// If the file cannot be read, or a line of it is invalid. The message names the line.
pub fn read_clock(path: &Path) -> Result<Vec<TurnTime>, RunDirError> {
    read_lines(path)
}

impl RunDir {
    /// Returns the path of the times of the turns of a step.
    pub fn clock(&self, step: u64) -> PathBuf {
        self.path.join(file(step))
    }

    /// Writes the times of the turns of a step.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn write_clock(&mut self, step: u64, times: &[TurnTime]) -> Result<(), RunDirError> {
        let bytes = pack_lines(times).at("compress", &self.clock(step))?;
        self.write_listed(file(step), &bytes)
    }
}

fn file(step: u64) -> String {
    format!("{CLOCK}/step-{step:06}.jsonl.zst")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_line_of_an_older_version_has_no_begin() {
        let old = r#"[3,1,"search/verifier",250,500]"#;
        let time: TurnTime = serde_json::from_str(old).unwrap();
        assert_eq!(time, TurnTime(3, 1, Seat::only("search/verifier"), 250, 500, None));
        assert_eq!(serde_json::to_string(&time).unwrap(), old);
        let new = r#"[3,1,"search/verifier",250,500,300]"#;
        let time: TurnTime = serde_json::from_str(new).unwrap();
        assert_eq!((time.5, serde_json::to_string(&time).unwrap()), (Some(300), new.to_owned()));
    }
}

//! Settings of what a run writes: checkpoints, and records that the pages show.

use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::runtime::SavedMoments;
use crate::settings::Settings;

/// `[checkpoint]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "run")]
pub struct CheckpointConfig {
    /// Number of steps between checkpoints; 0 writes only the checkpoints that every run has: at the start, at the end, and
    /// (with `best`) after a new best validation result.
    #[setting(default = 10)]
    pub every: u64,
    /// Number of checkpoints that are kept, the newest ones.
    #[setting(default = 2)]
    pub keep: NonZeroUsize,
    /// Also keep the checkpoint with the best validation result.
    #[setting(default = true)]
    pub best: bool,
    /// Moments of optimizers in a checkpoint: with `f32`, a resume has the same bits; `bf16` rounds them, to half of the bytes; with
    /// `none`, a resume begins with fresh ones.
    pub moments: SavedMoments,
}

/// `[record]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "run")]
pub struct RecordConfig {
    /// Record every trained turn with the terms of its advantage.
    #[setting(default = true)]
    pub samples: bool,
    /// Number of steps between records of the entropy and log-ratio of every trained token; step 1 is also recorded; 0
    /// disables all of these records; only with `samples`.
    #[setting(default = 10, idle_when = "samples = false")]
    pub tokens_every: u64,
    /// Record the episodes of evaluations.
    #[setting(default = true)]
    pub evaluations: bool,
    /// Record when the parts of each step and the turns of each episode began and ended.
    #[setting(default = true)]
    pub clock: bool,
}

impl RecordConfig {
    /// True if quantities of tokens are recorded in step `step`, from 0. The number of steps has no influence: it may change
    /// when a run is resumed.
    pub fn tokens_in(&self, step: u64) -> bool {
        let due = step == 0 || (step + 1).is_multiple_of(self.tokens_every.max(1));
        self.samples && self.tokens_every > 0 && due
    }
}

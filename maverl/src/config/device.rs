//! `[worker_groups.NAME]`: devices and micro-batches of worker groups.
//!
//! A key of `[worker_groups.NAME]` is also a field of `WorkerPlan`, whose value `check/worker.rs` sets, and of the
//! engine's `WorkerSpec`.

use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::LARGE;
use crate::runtime::DeviceChoice;
use crate::settings::Settings;

/// `[worker_groups.NAME]`: a worker group of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct WorkerGroupConfig {
    /// Device of this worker group: a value of `runtime.device`, which is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"cuda:1\"")]
    pub device: Option<DeviceChoice>,
    /// Maximum number of tokens of a training micro-batch of this worker group; `runtime.micro_batch_tokens` is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "4096", range = 1..=LARGE)]
    pub micro_batch_tokens: Option<NonZeroUsize>,
}

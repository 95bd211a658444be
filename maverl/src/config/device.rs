//! `[worker_groups.NAME]`: devices of worker groups.
//!
//! A key of `[worker_groups.NAME]` is also a field of `WorkerPlan`, whose value `check/worker.rs` sets, and of the
//! engine's `WorkerSpec`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
}

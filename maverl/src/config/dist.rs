//! `[dist]`: processes that train together.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// Largest number of seconds: a week.
const WEEK: f64 = 604_800.0;

/// `[dist]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "run")]
pub struct DistConfig {
    /// Address of rank 0, `host:port`; that of the launcher unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"node-0:29500\"")]
    pub address: Option<String>,
    /// Seconds within which the failure of a rank ends the other ranks.
    #[setting(default = 60.0, range = 0.5..=WEEK)]
    pub timeout_s: f64,
    /// Seconds within which all ranks must have started.
    #[setting(default = 300.0, range = 0.5..=WEEK)]
    pub join_s: f64,
}

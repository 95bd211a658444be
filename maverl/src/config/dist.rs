//! `[dist]`: processes that train together.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dist::Transport;
use crate::settings::Settings;

/// Largest number of seconds: a week.
const WEEK: f64 = 604_800.0;

/// `[dist]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "run")]
pub struct DistConfig {
    /// Address of rank 0, `host:port`; the default is the address from the launcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"node-0:29500\"")]
    pub address: Option<String>,
    /// Number of seconds after the failure of a rank within which the other ranks end.
    #[setting(default = 60.0, range = 0.5..=WEEK)]
    pub timeout_s: f64,
    /// Number of seconds within which all ranks must have started.
    #[setting(default = 300.0, range = 0.5..=WEEK)]
    pub join_s: f64,
    /// Transport of gradients and weights between ranks.
    pub transport: Transport,
    /// Divide the moments of the optimizers among the ranks (ZeRO-1).
    #[setting(default = false)]
    pub shard_optimizer: bool,
}

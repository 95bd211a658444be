//! `[dist]`: processes that train together.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::MANY;
use crate::dist::{Shard, Transport};
use crate::settings::Settings;

/// Largest number of seconds: a week.
const WEEK: f64 = 604_800.0;

/// Weights that rollouts read, if each rank has its share of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RolloutWeights {
    /// A copy if it fits the memory, else a layer at a time.
    #[default]
    Auto,
    /// A copy, gathered once a step.
    Copy,
    /// A layer at a time, in each pass of all ranks.
    Layers,
}

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
    /// Division of models among the ranks. "optimizer" divides moments (ZeRO-1), "full" weights and sums too (ZeRO-3), and "hybrid"
    /// the weights in use within a machine and the rest over all ranks. "full" trains one policy on the CPU, without adapter and
    /// critic; "hybrid" is planned (`maverl check --ranks`), and not trained.
    pub shard: Shard,
    /// Weights that rollouts read, if models are divided. "copy" is gathered once a step, "layers" a layer at a time in each pass; "auto"
    /// is a copy if it fits.
    #[setting(idle_unless = "shard = ['hybrid', 'full']")]
    pub rollout: RolloutWeights,
    /// Micro-batches of a rank between two reductions of gradients, if models are divided; 0 is all of an optimizer step. Fewer keep less
    /// for the way back, and send more.
    #[setting(default = 0, range = 0..=MANY, level = "team", idle_unless = "shard = ['hybrid', 'full']")]
    pub round: usize,
}

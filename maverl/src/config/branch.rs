//! `[rollout.branch]`: branches of played episodes.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// `[rollout.branch]`: episodes that begin with the turns of a played one, and go on with another reply.
///
/// They are played if the estimator of advantages compares them: `kind = "counterfactual"`, `kind = "continuations"`,
/// `kind = "shapley"` or `by = "branch"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct BranchConfig {
    /// Seats at whose turns branches begin, such as `debate/debater#0`; the name of an agent stands for all of its seats; an
    /// empty list stands for all trained seats.
    pub seats: Vec<String>,
    /// Turns of each seat at which branches begin: every one, the first, the last, or a random one.
    pub at: BranchTurns,
    /// Number of replies at a branch, with the one that was played.
    #[setting(default = 4, range = 2..=64)]
    pub width: NonZeroU32,
    /// Number of times that the episode is played to its end from each reply.
    #[setting(default = 1, range = 1..=64)]
    pub continuations: NonZeroU32,
    /// Replies after which turns get branches: the played ones (`played`), the best one of each turn (`best`), or all of them, so
    /// that the replies of each seat are played with all replies of the others (`all`). The last two need `by = "branch"`.
    pub keep: BranchKeep,
    /// Maximum number of turns per task that branches sample; an episode is expected to have as many turns as it had when it was
    /// played; 0 is no limit. Turns
    /// get branches in a random order, which depends on the seed, until the next one would exceed it.
    #[setting(default = 0)]
    pub turns: u64,
}

/// Replies after which turns get branches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BranchKeep {
    /// The played ones.
    #[default]
    Played,
    /// Of each turn the reply with the highest mean reward, the first of several.
    Best,
    /// All of them.
    All,
}

/// Turns of a seat at which branches begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BranchTurns {
    /// All of them.
    #[default]
    Every,
    /// The first of an episode.
    First,
    /// The last of an episode.
    Last,
    /// A random one of an episode.
    Random,
}

//! Units that parts of the reward score, and what happens without a value.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Unit that a part of the reward scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RewardUnit {
    /// Each turn.
    #[default]
    Turn,
    /// The answer of the episode, whose value every turn gets.
    Answer,
}

/// Outcome of an episode for which a part of the reward has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnRewardError {
    /// It ends unscored.
    #[default]
    Unscored,
    /// The value is left out, and counted in `rollout/score/skipped/NAME`.
    Skip,
}

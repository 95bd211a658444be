//! `[algorithm.replay]`: groups of earlier steps that are trained on again.

use serde::Serialize;

use crate::settings::Settings;

/// Buffer of groups of earlier steps, which take the place of groups without an advantage (the replay buffer of TRL's
/// `grpo_with_replay_buffer`). The buffer itself is in `algo/replay.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Settings)]
#[settings(partial = "ReplayConfig", level = "team")]
pub struct ReplayPlan {
    /// Number of groups of episodes that are kept to be trained on again in the place of groups whose advantages are all 0, those
    /// with the largest mean absolute advantage; 0 disables it.
    #[setting(default = 0)]
    pub groups: u32,
    /// Number of steps after which a group is no longer kept; 0 is no limit.
    #[setting(default = 0, idle_when = "groups = 0")]
    pub max_age: u64,
}

//! Rollout: many concurrent episodes, each one an async task, with their turns batched by the runtime.
//!
//! - **RO-1** A failure in an episode ends that episode and never another. This includes an environment that blocks its
//!   thread.
//! - **RO-2** A turn is recorded before its reply is parsed.
//! - Results do not depend on the order in which episodes or requests end: seeds come from [`episode_seed`] and turn
//!   paths, and results are in the order of the requests.

mod admission;
mod backend;
mod build;
mod endpoint;
mod episode_rewards;
mod error;
mod fault;
mod gate;
mod later_system;
mod mixture;
mod plain;
mod prompt;
mod replay;
#[doc(hidden)]
pub mod rewards;
mod runner;
mod script;
mod seed;
mod servers;
mod structured;
mod teachers;
mod unjudged;
mod versions;

#[doc(hidden)]
pub mod testing;

#[doc(hidden)]
pub use crate::orchestra::{Prefix, RequestTime, RequestTimes};
#[doc(hidden)]
pub use backend::ModelBackend;
#[doc(hidden)]
pub use build::start_environment;
#[doc(hidden)]
pub use endpoint::{Endpoint, EndpointUsage, EndpointVoice};
#[doc(hidden)]
pub use episode_rewards::{EpisodeRewards, ValueSource, WeightedReward};
pub use error::RolloutError;
#[doc(hidden)]
pub use later_system::takes_later_system;
#[doc(hidden)]
pub use plain::plain_conversation;
#[doc(hidden)]
pub use prompt::render_turn;
#[doc(hidden)]
pub use replay::{Replayed, TurnDifference, replay, replay_turns};
#[doc(hidden)]
pub use rewards::{ScoredRewards, Scorer};
#[doc(hidden)]
pub use runner::{BegunRequest, EpisodeRequest, EpisodeRunner, Playing, Rollout};
pub use script::{Script, Scripted};
#[doc(hidden)]
pub use seed::episode_seed;
#[doc(hidden)]
pub use servers::{Probe, RemotePolicy, ServerUsage, Servers};
pub(crate) use teachers::EndpointTeachers;
pub(crate) use versions::{Clock, PolicyVersions, TurnSchedule, TurnVersions, updated_seats};

#[cfg(test)]
mod tests;

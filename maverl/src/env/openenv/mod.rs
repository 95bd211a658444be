//! Environments of servers that speak OpenEnv, with the tasks that a server has.

#[cfg(feature = "openenv")]
mod environment;
#[cfg(feature = "openenv")]
mod form;
#[cfg(feature = "openenv")]
mod server;
#[cfg(feature = "openenv")]
mod socket;
mod tasks;

#[cfg(feature = "openenv")]
pub use environment::{OpenEnv, StepRewards};

crate::behind_feature!("openenv", "openenv");

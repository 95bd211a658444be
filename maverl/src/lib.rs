//! maverl trains *teams* of language-model agents with reinforcement learning.
#![warn(missing_docs)]

#[allow(unused_extern_crates)] // generated code says `::maverl` inside this crate too
extern crate self as maverl;

pub mod agent;
pub mod algo;
pub mod check;
pub mod checkpoint;
pub mod config;
pub mod env;
pub mod eval;
pub mod metrics;
pub mod model;
pub mod orchestra;
pub mod plan;
pub mod registry;
pub mod reward;
pub mod run_dir;
pub mod rollout;
pub mod runtime;
pub mod task;
pub mod train;
pub mod trajectory;

pub use agent::{Agent, AgentName, AskError, Input, Prompt, Reply, ReplyError, Show};
pub use check::{Purpose, Sources, check};

/// Not public API. Used by generated code.
#[doc(hidden)]
pub mod __private {
    pub use inventory;
    pub use serde;
    pub use serde_json;
}

//! maverl trains *teams* of language-model agents with reinforcement learning.
#![warn(missing_docs)]

#[allow(unused_extern_crates)] // generated code says `::maverl` inside this crate too
extern crate self as maverl;

pub mod agent;
pub mod algo;
pub mod check;
pub mod cli;
pub mod checkpoint;
pub mod config;
pub mod data;
pub mod draw;
pub mod env;
pub mod eval;
pub mod metrics;
pub mod model;
pub mod orchestra;
pub mod plan;
pub mod registry;
pub mod reward;
pub mod rollout;
pub mod run_dir;
pub mod runtime;
pub mod task;
pub mod train;
pub mod trajectory;
pub mod world;

pub use agent::{Agent, AgentName, AskError, Input, Prompt, Reply, ReplyError, Show};
pub use check::{Purpose, Sources, check};
pub use train::{eval, train};

#[doc(hidden)]
pub mod __private;

pub use maverl_macros::{Input, Reply, agent, environment, orchestra, reward};

/// Everything a team crate needs: `use maverl::prelude::*;`.
pub mod prelude {
    pub use crate::agent::{
        Agent, AgentName, AskError, Input, Prompt, Reply, ReplyError, Show, tag,
    };
    pub use crate::env::{EnvError, Environment, Session};
    pub use crate::orchestra::{Orchestra, OrchestraName, Team};
    pub use crate::reward::Rewards;
    pub use crate::task::{Action, Observation, Score, Task};
    pub use crate::trajectory::{Episode, Seat, Turn};
    pub use maverl_macros::{Input, Reply, agent, environment, orchestra, reward};
}

/// Writes the `main` of a binary that has the `maverl` command line and the declarations of the named crates.
///
/// ```ignore
/// maverl::main!(my_team, orchestras);
/// ```
///
/// A dependency that is never named registers nothing: the compiler drops it, and its declarations with it.
#[macro_export]
macro_rules! main {
    ($($team:ident),* $(,)?) => {
        $(use $team as _;)*

        fn main() -> ::std::process::ExitCode {
            $crate::cli::main()
        }
    };
}

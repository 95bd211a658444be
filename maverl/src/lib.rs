//! maverl trains *teams* of language-model agents with reinforcement learning.
//!
//! A team is declared in ordinary Rust: agents with `#[agent]`, their control flow with `#[orchestra]`. A TOML file
//! maps the agents to models. A run is then:
//!
//! ```no_run
//! use maverl::registry::Registry;
//! use maverl::run_dir::RunLocation;
//! use maverl::train::Options;
//! use maverl::{Purpose, Sources, check};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = Registry::collect()?;
//! let plan = check(&Sources::file("run.toml"), &registry, Purpose::Train)
//!     .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
//! let options = Options::new(RunLocation::New("runs/mine".into()));
//! let report = maverl::train(&plan, &registry, options).await?;
//! println!("{}", report.table(80));
//! # Ok(())
//! # }
//! ```
//!
//! [`main!`] turns this into a command line. A team crate needs only [`prelude`].
//!
//! # Modules, in reading order
//!
//! | | |
//! |---|---|
//! | [`task`], [`trajectory`] | tasks, and records of episodes: plain data |
//! | [`mod@agent`], [`mod@orchestra`] | roles with typed inputs and replies; control flow of one episode |
//! | [`mod@env`], [`mod@reward`] | the environment, which scores the answer; further parts of the reward |
//! | [`tools`] | calls in replies, their schemas, Rust functions as tools |
//! | [`credit`] | estimators of advantages and surrogates that any crate can declare |
//! | [`registry`] | everything that is declared in the linked crates |
//! | [`settings`] | keys that are declared once: default, range, level |
//! | [`config`], [`mod@check`], [`plan`] | what a user writes; the border where all of it is checked; what it means |
//! | [`builtin`], [`data`] | built-in tasks and documents; files of tasks, documents and demonstrations |
//! | [`model`], [`runtime`] | transformers; the threads that own them, generate and update |
//! | [`rollout`] | many episodes at once, by models or by scripts |
//! | [`algo`] | samples, advantages, losses, batches |
//! | [`ballot`] | votes for answers |
//! | [`metrics`], [`mod@eval`] | the numbers of a step, and of an evaluation or a comparison |
//! | [`run_dir`], [`checkpoint`] | what a run leaves on disk |
//! | [`testing`] | assertions for tests of estimators |
//! | [`mod@train`], [`cli`] | the course of a run, and the command line |
#![warn(missing_docs)]

#[allow(unused_extern_crates)] // generated code says `::maverl` inside this crate too
extern crate self as maverl;

pub mod agent;
pub mod algo;
pub mod ballot;
pub mod builtin;
pub mod check;
pub mod checkpoint;
pub mod cli;
mod client;
pub mod config;
pub mod credit;
pub mod data;
pub mod env;
pub mod eval;
pub mod metrics;
pub mod orchestra;
pub mod plan;
pub mod registry;
pub mod reward;
pub mod rng;
pub mod rollout;
pub mod run_dir;
#[cfg(feature = "serve")]
pub mod serve;
pub mod settings;
pub(crate) mod table;
pub mod task;
pub mod testing;
pub mod tools;
pub mod train;
pub mod trajectory;
#[cfg(feature = "view")]
pub mod view;

pub use maverl_engine::{model, runtime};

pub use agent::{Agent, AgentName, AskError, Input, Prompt, Reply, ReplyError, Show};
pub use check::{Purpose, Sources, check};
pub use train::{eval, train};

#[doc(hidden)]
pub mod __private;

/// Examples in the documentation of the macros, run as tests.
#[cfg(doctest)]
mod macro_examples {
    #[doc = include_str!("../../maverl-macros/docs/agent.md")]
    struct Agent;
    #[doc = include_str!("../../maverl-macros/docs/orchestra.md")]
    struct Orchestra;
    #[doc = include_str!("../../maverl-macros/docs/environment.md")]
    struct Environment;
    #[doc = include_str!("../../maverl-macros/docs/reward.md")]
    struct Reward;
    #[doc = include_str!("../../maverl-macros/docs/advantage.md")]
    struct Advantage;
    #[doc = include_str!("../../maverl-macros/docs/surrogate.md")]
    struct Surrogate;
    #[doc = include_str!("../../maverl-macros/docs/tool.md")]
    struct Tool;
    #[doc = include_str!("../../maverl-macros/docs/input.md")]
    struct Input;
    #[doc = include_str!("../../maverl-macros/docs/reply.md")]
    struct Reply;
    #[doc = include_str!("../../maverl-macros/docs/settings.md")]
    struct Settings;
}

pub use maverl_macros::{
    Input, Reply, Settings, advantage, agent, environment, orchestra, reward, surrogate, tool,
};

/// Imports of a team crate: `use maverl::prelude::*;`.
pub mod prelude {
    pub use crate::agent::{
        Agent, AgentName, AskError, Input, Prompt, Reply, ReplyError, Show, tag,
    };
    pub use crate::env::{EnvError, Environment, Session};
    pub use crate::orchestra::{Orchestra, OrchestraName, Team};
    pub use crate::reward::Rewards;
    pub use crate::task::{Action, Observation, Score, Task};
    pub use crate::trajectory::{Episode, Seat, Turn};
    pub use maverl_macros::{Input, Reply, agent, environment, orchestra, reward, tool};
}

/// Defines the `main` of a binary with the `maverl` command line and the declarations of the named crates.
///
/// ```ignore
/// maverl::main!(my_team, orchestras);
/// ```
///
/// A dependency that is never named registers nothing: the compiler drops it with its declarations.
#[macro_export]
macro_rules! main {
    ($($team:ident),* $(,)?) => {
        $(use $team as _;)*

        fn main() -> ::std::process::ExitCode {
            $crate::cli::main()
        }
    };
}

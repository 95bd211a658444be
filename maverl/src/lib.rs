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
//! [`main!`] turns this into a command line, which is in the crate `maverl-cli`. A team crate needs only [`prelude`].
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
//! | [`settings`] | keys that are declared once: default, range, level |
//! | [`registry`] | everything that is declared in the linked crates |
//! | [`fn@check`], [`Sources`], [`Plan`] | validation of a configuration; where it comes from; what it means |
//! | [`files`], [`text`], [`net`] | directories of models; tokenizer and chat templates; transformers |
//! | [`loss`], [`runtime`] | losses of tokens; the threads that own models, generate and update |
//! | [`rollout`] | episodes without a model, for tests of orchestras |
//! | [`mod@train`], [`fn@train()`], [`fn@eval()`] | a run: its steps, evaluations and files |
//! | [`run_dir`], [`mod@eval`] | the files of a run; results of evaluations and comparisons |
//! | [`ballot`], [`rng`] | votes for answers; random numbers that are equal on every machine |
//! | [`testing`] | assertions for tests of estimators and surrogates |
//!
//! Whatever else is public is for the crates of the workspace. It is hidden here, and may change.
#![cfg_attr(test, allow(clippy::disallowed_methods))] // tests compare with the functions of the C library
#![warn(missing_docs)]

#[allow(unused_extern_crates)] // generated code says `::maverl` inside this crate too
extern crate self as maverl;

pub mod agent;
#[doc(hidden)]
pub mod algo;
pub mod ballot;
#[doc(hidden)]
pub mod builtin;
#[doc(hidden)]
pub mod check;
#[doc(hidden)]
pub mod checkpoint;
#[doc(hidden)]
pub mod cli;
#[doc(hidden)]
pub mod client;
#[doc(hidden)]
pub mod collect;
#[doc(hidden)]
pub mod config;
pub mod credit;
#[doc(hidden)]
pub mod data;
pub mod env;
pub mod eval;
mod map;
#[doc(hidden)]
pub mod metrics;
pub mod orchestra;
#[doc(hidden)]
pub mod output;
#[doc(hidden)]
pub mod plan;
mod python;
pub mod registry;
pub mod reward;
pub mod rng;
pub mod rollout;
pub mod run_dir;
#[doc(hidden)]
pub mod table;
pub mod task;
pub mod testing;
pub mod tools;
pub mod train;
pub mod trajectory;
mod verifier;

pub(crate) use map::{IntoMap, TryIntoMap};
pub(crate) use maverl_dist as dist;
pub use maverl_engine::{files, loss, net, runtime, text};
pub use maverl_settings as settings;
#[doc(hidden)]
pub use maverl_settings::lacks_feature;

pub use agent::{Agent, AgentName, AskError, Input, Prompt, Reply, ReplyError, Show};
pub use check::{Purpose, check};
pub use config::source::{Diagnostic, Sources};
pub use plan::Plan;
pub use train::{eval, train};

#[doc(hidden)]
pub mod __private;

/// Examples in the documentation of the macros, run as tests.
#[cfg(doctest)]
mod macro_examples {
    #[doc = include_str!("../../maverl-macros/docs/agent.md")]
    struct AgentPage;
    #[doc = include_str!("../../maverl-macros/docs/orchestra.md")]
    struct OrchestraPage;
    #[doc = include_str!("../../maverl-macros/docs/environment.md")]
    struct EnvironmentPage;
    #[doc = include_str!("../../maverl-macros/docs/reward.md")]
    struct RewardPage;
    #[doc = include_str!("../../maverl-macros/docs/advantage.md")]
    struct AdvantagePage;
    #[doc = include_str!("../../maverl-macros/docs/surrogate.md")]
    struct SurrogatePage;
    #[doc = include_str!("../../maverl-macros/docs/tool.md")]
    struct ToolPage;
    #[doc = include_str!("../../maverl-macros/docs/input.md")]
    struct InputPage;
    #[doc = include_str!("../../maverl-macros/docs/reply.md")]
    struct ReplyPage;
    #[doc = include_str!("../../maverl-macros/docs/settings.md")]
    struct SettingsPage;
}

pub use maverl_macros::{
    Input, Reply, Settings, advantage, agent, environment, orchestra, reward, surrogate, tool,
};

/// Imports of a team crate: `use maverl::prelude::*;`.
pub mod prelude {
    pub use crate::agent::{
        Agent, AgentName, Answer, Approval, AskError, Input, Prompt, Reply, ReplyError, Show, tag,
    };
    pub use crate::env::{EnvError, Environment, Session};
    pub use crate::orchestra::{Orchestra, OrchestraName, Team};
    pub use crate::reward::Rewards;
    pub use crate::task::{Action, Observation, Score, Task, TaskError, TaskList};
    pub use crate::trajectory::{Episode, Seat, Turn};
    pub use maverl_macros::{Input, Reply, Settings, agent, environment, orchestra, reward, tool};
}

/// Defines the `main` of a binary with the `maverl` command line and the declarations of the named crates.
///
/// ```ignore
/// maverl::main!(my_team, orchestras);
/// ```
///
/// The command line is in the crate `maverl-cli`, a dependency of the binary beside `maverl`. A dependency that is never named
/// registers nothing: the compiler drops it with its declarations.
#[macro_export]
macro_rules! main {
    ($($team:ident),* $(,)?) => {
        $crate::__private::team_crates!($($team)*);
        $(use $team as _;)*

        fn main() -> ::std::process::ExitCode {
            ::maverl_cli::main()
        }
    };
    ($($other:tt)*) => {
        ::core::compile_error!(
            "`maverl::main!` takes the names of crates as Rust writes them: `maverl::main!(my_team, orchestras);`"
        );
    };
}

//! `maverl train`, and what the other commands, which are in the crate `maverl-cli`, share with it.
//!
//! They are in this crate because an example is a program that only trains: the first command of the README compiles no
//! other command.

mod arguments;
mod card;
pub mod check_config;
pub mod examples;
pub mod export;
mod failure;
mod local_ranks;
pub mod models;
pub mod number;
pub mod paths;
mod planning;
mod process;
mod run_options;
pub mod runs;
mod seeds;
mod simulated;
mod stages;
pub mod terminal;
mod tracking;
pub mod training;
pub mod usage;

pub use arguments::{BuiltinConfig, ConfigArgs, RunArgs};
pub use failure::Failure;
pub use planning::{load_config, plan_checked, plan_with_warnings};
pub use process::{block_on, exit, stop_with_starter};
pub use simulated::Simulated;
pub use stages::stage_configs;
pub use terminal::{print, tell};
pub use training::train_example;

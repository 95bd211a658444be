//! Trains the three-agent search team with the built-in model in the built-in environment.
//!
//! `cargo run --release --example search_orchestra` takes the arguments of `maverl train`.

use std::path::Path;
use std::process::ExitCode;

use orchestras as _; // brings `search/route` and its agents

fn main() -> ExitCode {
    let config = include_str!("search_orchestra.toml");
    maverl::cli::train_example("search_orchestra", config, Path::new(""))
}

//! Trains the three-agent search team, from the shipped model, on the shipped world.
//!
//! `cargo run --release --example search_orchestra` takes what `maverl train` takes.

use std::path::Path;
use std::process::ExitCode;

use orchestras as _; // brings `search/route` and its agents

fn main() -> ExitCode {
    let config = include_str!("search_orchestra.toml");
    maverl::cli::train_example("search_orchestra", config, Path::new(""))
}

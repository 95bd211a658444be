//! End-to-end tests of the command line.
#![allow(clippy::unwrap_used)]

mod algorithms;
mod asynchronous;
mod bad_input;
mod branches;
mod call_forms;
mod code;
mod collect;
mod commands;
mod completions;
mod conversations;
mod damage;
mod data_sets;
mod device;
mod disk;
mod endpoints;
mod examples;
mod exit_codes;
mod f16;
mod harbor;
mod hub;
mod hub_splits;
mod interrupt;
mod judges;
mod kill;
mod learners;
mod metrics;
mod models;
mod numbers;
mod observations;
mod package;
mod programs;
mod python;
mod ranks;
mod recipes;
mod replay_groups;
mod resolved;
mod rollout_servers;
mod schema;
mod sharing;
mod stages;
mod streaming;
mod teachers;
mod terminal;
mod tracking;
mod tracking_cost;
mod tracking_live;
mod verifier;
mod view;
mod worker_groups;
mod xquad;

use maverl_tests::lab::Lab;

/// Creates a test directory with the tests' own team.
fn lab() -> Lab {
    Lab::new(env!("CARGO_BIN_EXE_team"))
}

//! Common parts of the end-to-end tests: a team for a random model, a directory that runs it as a user would, and a hub
//! to download models from.
#![allow(clippy::disallowed_methods)] // the estimator of the book is written as a user would

pub mod data_hub;
pub mod estimator;
pub mod hub;
pub mod inference;
pub mod lab;
#[path = "../../crates/dist/src/testing/port.rs"]
pub mod port;
pub mod push;
pub mod schema;
pub mod team;
pub mod trackers;

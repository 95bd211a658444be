//! `maverl serve train`: the Tinker API. Clients train adapters on one base, each with passes and optimizer steps of its own, and
//! sample from them.
//!
//! A request about a model is put into its queue, and answered with a number at once; its result is fetched later. Messages are
//! those of the package `tinker` 0.38 (`proto.rs`, `requests.rs`).

mod answers;
mod checkpoints;
mod datum;
mod losses;
mod model;
mod proto;
mod requests;
mod results;
mod routes;
mod sampling;
mod server;
mod settings;
mod state;
mod worker;

pub use routes::router;
pub use server::TinkerServer;
pub use settings::{TinkerSettings, TrainedBase};

#[cfg(test)]
mod tests;

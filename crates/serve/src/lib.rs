//! Servers of `maverl serve`: one listener, guard and set of limits under all of them.
//!
//! - [`Listener`] accepts connections, bounds what clients can hold, and drains.
//! - [`Guard`] checks keys, `Host` and `Origin`.
//! - [`ServerMetrics`] are Prometheus text at `/metrics`.
//! - [`with_common_routes`] adds the routes that every server has.
//!
//! Memory has limits in bytes: of bodies (`body.rs`), of texts that are parsed and encoded at once (`model/reading.rs`),
//! and of texts that cannot fit a context, which are refused before they are encoded. Each choice of a completion takes
//! a permit of `queue.rs`.
#![cfg_attr(test, allow(clippy::disallowed_methods))] // tests compare with the functions of the C library

mod anthropic;
mod base;
mod body;
#[cfg(any(feature = "grpc", feature = "openenv"))]
pub mod environments;
pub mod gateway;
mod guard;
mod key;
mod listener;
mod metrics;
pub mod model;
mod openai;
mod queue;
mod refusal;
mod retriever;
pub mod reward;
mod stream;
pub mod team;
#[cfg(test)]
mod testing;
#[cfg(feature = "tinker")]
pub mod tinker;
#[cfg(feature = "tls")]
mod tls;

pub use base::{Health, Ready, with_common_routes};
pub use body::read;
pub use guard::{ClientNumber, Guard, is_loopback};
pub use key::Keys;
pub use listener::{Limits, Listener};
pub use metrics::{Family, Kind, ServerMetrics};
pub use openai::Structured;
pub use queue::QueueLimits;
pub use refusal::Refusal;
pub use retriever::{retriever, serve_retriever};
#[cfg(feature = "tls")]
pub use tls::Tls;

inventory::submit!(maverl::registry::LinkedFeature("serve"));
#[cfg(feature = "grammar")]
inventory::submit!(maverl::registry::LinkedFeature("grammar"));
#[cfg(feature = "tinker")]
inventory::submit!(maverl::registry::LinkedFeature("tinker"));
#[cfg(feature = "tls")]
inventory::submit!(maverl::registry::LinkedFeature("tls"));

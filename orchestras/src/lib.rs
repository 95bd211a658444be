//! The orchestras that ship with maverl.

pub mod chain;
pub mod cory;
pub mod debate;
pub mod manager;
pub mod math;
pub mod mixture;
#[cfg(feature = "serve")]
pub mod program;
pub mod search;
pub mod self_play;
mod shipped;
pub mod solo;
pub mod summary;
pub mod tools;
pub mod tree;
pub mod vote;
pub mod workflow;

maverl::behind_feature!("program/run", "serve");

#[cfg(test)]
mod cheats;
#[cfg(test)]
mod options;
#[cfg(test)]
mod readme;
#[cfg(test)]
mod testing;

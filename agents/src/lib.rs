//! The agents that ship with maverl.

pub mod search;

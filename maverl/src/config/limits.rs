//! Largest values of keys.

pub(super) use crate::runtime::{LARGE, MANY};

/// Largest size of a group.
pub(super) const GROUP: u64 = 1 << 16;
/// Largest number of hidden units of a mixing network.
pub(super) const WIDTH: u64 = 1 << 12;

//! The orchestras that ship with maverl.

pub mod search;

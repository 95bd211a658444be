//! Numbers.
pub mod loss;

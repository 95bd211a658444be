//! What the end-to-end tests share: a team that a random model can play, and a laboratory that runs it as a user would,
//! and a hub to download models from.

pub mod estimator;
pub mod hub;
pub mod lab;
pub mod team;

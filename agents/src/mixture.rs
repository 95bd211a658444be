//! Agents that propose answers in layers, and one that aggregates them.

use maverl::prelude::*;

use crate::reply::Solution;
use crate::search::Inquiry;

/// Proposes an answer, given those of the layer before.
#[agent(Inquiry -> Solution, name = "mixture/proposer")]
pub struct Proposer;

/// Aggregates the last layer's answers into one.
#[agent(Inquiry -> Solution, name = "mixture/aggregator")]
pub struct Aggregator;

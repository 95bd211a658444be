//! Agents that propose answers in layers, and one that aggregates them.

use maverl::prelude::*;

use crate::reply::Solution;
use crate::search::Inquiry;

/// Proposes an answer, given those of the layer before.
#[agent(
    name = "mixture/proposer",
    input = Inquiry,
    output = Solution,
    prompt = "../prompts/mixture/proposer.md"
)]
pub struct Proposer;

/// Aggregates the last layer's answers into one.
#[agent(
    name = "mixture/aggregator",
    input = Inquiry,
    output = Solution,
    prompt = "../prompts/mixture/aggregator.md"
)]
pub struct Aggregator;

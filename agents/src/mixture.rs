//! Agents that propose answers, layer by layer, and one that makes one of them.

use maverl::prelude::*;

use crate::reply::Solution;
use crate::search::Inquiry;

/// Proposes an answer, with those of the layer before.
#[agent(
    name = "mixture/proposer",
    input = Inquiry,
    output = Solution,
    prompt = "../prompts/mixture/proposer.md"
)]
pub struct Proposer;

/// Makes one answer of the last layer's.
#[agent(
    name = "mixture/aggregator",
    input = Inquiry,
    output = Solution,
    prompt = "../prompts/mixture/aggregator.md"
)]
pub struct Aggregator;

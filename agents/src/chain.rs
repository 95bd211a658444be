//! Agents that pass a question on: each sees the replies before its own.

use maverl::prelude::*;

use crate::reply::Solution;
use crate::search::Inquiry;

/// Reasons aloud for the agents that follow.
#[agent(
    name = "chain/reasoner",
    input = Inquiry,
    output = String,
    prompt = "../prompts/chain/reasoner.md"
)]
pub struct Reasoner;

/// Gives the final answer.
#[agent(
    name = "chain/actor",
    input = Inquiry,
    output = Solution,
    prompt = "../prompts/chain/actor.md"
)]
pub struct Actor;

//! Agents that pass a question on: each sees what those before it said.

use maverl::prelude::*;

use crate::reply::Solution;
use crate::search::Inquiry;

/// Thinks aloud for those that follow.
#[agent(
    name = "chain/reasoner",
    input = Inquiry,
    output = String,
    prompt = "../prompts/chain/reasoner.md"
)]
pub struct Reasoner;

/// Answers, last of all.
#[agent(
    name = "chain/actor",
    input = Inquiry,
    output = Solution,
    prompt = "../prompts/chain/actor.md"
)]
pub struct Actor;

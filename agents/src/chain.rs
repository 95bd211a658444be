//! Agents that pass a question on: each sees the replies before its own.

use maverl::prelude::*;

use crate::reply::Solution;
use crate::search::Inquiry;

/// Reasons aloud for the agents that follow.
#[agent(Inquiry -> String, name = "chain/reasoner")]
pub struct Reasoner;

/// Gives the final answer.
#[agent(Inquiry -> Solution, name = "chain/actor")]
pub struct Actor;

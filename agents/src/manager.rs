//! A manager and the agents it calls.

use maverl::prelude::*;

use crate::reply::Solution;
use crate::search::Inquiry;

/// Decides which agent is next.
#[agent(
    name = "manager/manager",
    input = Inquiry,
    output = Next,
    prompt = "../prompts/manager/manager.md"
)]
pub struct Manager;

/// Agent that a manager calls.
#[derive(Reply, Debug, Clone, Copy, PartialEq, Eq)]
#[reply(tag = "next")]
pub enum Next {
    /// The agent that answers.
    Solver,
    /// The agent that criticizes.
    Critic,
    /// None: the last answer is final.
    Stop,
}

/// Answers, given the discussion so far.
#[agent(
    name = "manager/solver",
    input = Inquiry,
    output = Solution,
    prompt = "../prompts/manager/solver.md"
)]
pub struct Solver;

/// Criticizes the discussion so far.
#[agent(
    name = "manager/critic",
    input = Inquiry,
    output = String,
    prompt = "../prompts/manager/critic.md"
)]
pub struct Critic;

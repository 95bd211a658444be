//! A manager, and those it calls.

use maverl::prelude::*;

use crate::reply::Solution;
use crate::search::Inquiry;

/// Says who is next.
#[agent(
    name = "manager/manager",
    input = Inquiry,
    output = Next,
    prompt = "../prompts/manager/manager.md"
)]
pub struct Manager;

/// Whom a manager calls.
#[derive(Reply, Debug, Clone, Copy, PartialEq, Eq)]
#[reply(tag = "next")]
pub enum Next {
    /// Somebody who answers.
    Solver,
    /// Somebody who says what is wrong.
    Critic,
    /// Nobody: the last answer stands.
    Stop,
}

/// Answers, with what was said so far.
#[agent(
    name = "manager/solver",
    input = Inquiry,
    output = Solution,
    prompt = "../prompts/manager/solver.md"
)]
pub struct Solver;

/// Says what is wrong with what was said so far.
#[agent(
    name = "manager/critic",
    input = Inquiry,
    output = String,
    prompt = "../prompts/manager/critic.md"
)]
pub struct Critic;

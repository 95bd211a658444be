//! A manager and the agents it calls.

use maverl::prelude::*;

use crate::reply::Solution;
use crate::search::Inquiry;

/// Decides which agent is next.
#[agent(Inquiry -> Next, name = "manager/manager")]
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
#[agent(Inquiry -> Solution, name = "manager/solver")]
pub struct Solver;

/// Criticizes the discussion so far.
#[agent(Inquiry -> String, name = "manager/critic")]
pub struct Critic;

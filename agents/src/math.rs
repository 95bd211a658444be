//! Agents that solve a problem and check the solution.

use maverl::prelude::*;

use crate::reply::{Review, Solution};
use crate::search::Inquiry;

/// Solves a problem, with its last attempt and what was said about it, if there is one.
#[agent(
    name = "math/solver",
    input = Inquiry,
    output = Solution,
    prompt = "../prompts/math/solver.md"
)]
pub struct Solver;

/// A question, and a solution to it.
#[derive(Input, Debug, Clone, PartialEq)]
pub struct Submission {
    /// What is asked.
    pub question: String,
    /// What somebody replied.
    #[input(observation)]
    pub solution: String,
}

/// Says whether a solution is right.
#[agent(
    name = "math/verifier",
    input = Submission,
    output = Review,
    prompt = "../prompts/math/verifier.md"
)]
pub struct Verifier;

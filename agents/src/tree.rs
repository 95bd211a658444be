//! Agents that grow a tree of solutions.

use maverl::prelude::*;

use crate::math::Submission;
use crate::reply::{Rating, Solution};
use crate::search::Inquiry;

/// Solves the problem, or improves the solution that it is shown.
#[agent(
    name = "tree/proposer",
    input = Inquiry,
    output = Solution,
    prompt = "../prompts/tree/proposer.md"
)]
pub struct Proposer;

/// Rates a solution.
#[agent(
    name = "tree/evaluator",
    input = Submission,
    output = Rating,
    prompt = "../prompts/tree/evaluator.md"
)]
pub struct Evaluator;

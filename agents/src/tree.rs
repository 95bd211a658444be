//! Agents that grow a tree of solutions.

use maverl::prelude::*;

use crate::math::Submission;
use crate::reply::{Rating, Solution};
use crate::search::Inquiry;

/// Solves the problem, or improves the solution that it is shown.
#[agent(Inquiry -> Solution, name = "tree/proposer")]
pub struct Proposer;

/// Rates a solution.
#[agent(Submission -> Rating, name = "tree/evaluator")]
pub struct Evaluator;

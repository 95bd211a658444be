//! Agents that answer, and one that tells them in short what all said.

use maverl::prelude::*;

use crate::reply::Solution;
use crate::search::Inquiry;

/// Answers, with the summary of the round before, if there was one.
#[agent(
    name = "summary/solver",
    input = Inquiry,
    output = Solution,
    prompt = "../prompts/summary/solver.md"
)]
pub struct Solver;

/// Says in short what all said.
#[agent(
    name = "summary/summarizer",
    input = Inquiry,
    output = String,
    prompt = "../prompts/summary/summarizer.md"
)]
pub struct Summarizer;

//! Agents that answer, and one that summarizes all answers for them.

use maverl::prelude::*;

use crate::reply::Solution;
use crate::search::Inquiry;

/// Answers, given the summary of the round before, if there was one.
#[agent(
    name = "summary/solver",
    input = Inquiry,
    output = Solution,
    prompt = "../prompts/summary/solver.md"
)]
pub struct Solver;

/// Summarizes all replies.
#[agent(
    name = "summary/summarizer",
    input = Inquiry,
    output = String,
    prompt = "../prompts/summary/summarizer.md"
)]
pub struct Summarizer;

//! Agents that answer, and one that summarizes all answers for them.

use maverl::prelude::*;

use crate::reply::Solution;
use crate::search::Inquiry;

/// Answers, given the summary of the round before, if there was one.
#[agent(Inquiry -> Solution, name = "summary/solver")]
pub struct Solver;

/// Summarizes all replies.
#[agent(Inquiry -> String, name = "summary/summarizer")]
pub struct Summarizer;

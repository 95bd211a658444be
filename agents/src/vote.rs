//! Agents that answer independently, and one that rates their answers.

use maverl::prelude::*;

use crate::math::Submission;
use crate::reply::{Rating, Solution};
use crate::search::Inquiry;

/// Answers without seeing the other answers.
#[agent(name = "vote/voter", input = Inquiry, output = Solution, prompt = "../prompts/vote/voter.md")]
pub struct Voter;

/// Rates an answer.
#[agent(name = "vote/rater", input = Submission, output = Rating, prompt = "../prompts/vote/rater.md")]
pub struct Rater;

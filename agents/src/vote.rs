//! Agents that answer independently, and one that weighs what they say.

use maverl::prelude::*;

use crate::math::Submission;
use crate::reply::{Rating, Solution};
use crate::search::Inquiry;

/// Answers without knowing of the others.
#[agent(name = "vote/voter", input = Inquiry, output = Solution, prompt = "../prompts/vote/voter.md")]
pub struct Voter;

/// Says how good an answer is.
#[agent(name = "vote/rater", input = Submission, output = Rating, prompt = "../prompts/vote/rater.md")]
pub struct Rater;

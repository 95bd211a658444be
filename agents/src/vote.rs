//! Agents that answer independently, and one that rates their answers.

use maverl::prelude::*;

use crate::math::Submission;
use crate::reply::{Rating, Solution};
use crate::search::Inquiry;

/// Answers without seeing the other answers.
#[agent(Inquiry -> Solution, name = "vote/voter")]
pub struct Voter;

/// Rates an answer.
#[agent(Submission -> Rating, name = "vote/rater")]
pub struct Rater;

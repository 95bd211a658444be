//! Two agents that answer one question; the second sees the first one's answer.

use maverl::prelude::*;

use crate::search::Inquiry;

/// Answers first.
#[agent(Inquiry -> Answer, name = "cory/pioneer")]
pub struct Pioneer;

/// A question, the information about it, and an answer.
#[derive(Input, Debug, Clone, PartialEq)]
pub struct Proposal {
    /// Question.
    pub question: String,
    /// Search results, oldest first.
    #[input(observation)]
    pub information: Vec<String>,
    /// The pioneer's answer; "unknown" if its reply was malformed.
    pub proposal: String,
}

/// Answers after reading the pioneer's answer.
#[agent(Proposal -> Answer, name = "cory/observer")]
pub struct Observer;

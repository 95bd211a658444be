//! Two agents that answer one question, the second with the first one's answer before it.

use maverl::prelude::*;

use crate::search::{Answer, Inquiry};

/// Answers first.
#[agent(name = "cory/pioneer", input = Inquiry, output = Answer, prompt = "../prompts/cory/pioneer.md")]
pub struct Pioneer;

/// A question, what is known about it, and an answer.
#[derive(Input, Debug, Clone, PartialEq)]
pub struct Proposal {
    /// What is asked.
    pub question: String,
    /// What was looked up, oldest first.
    #[input(observation)]
    pub information: Vec<String>,
    /// What the pioneer answered; "unknown" if that could not be read.
    pub proposal: String,
}

/// Answers with the pioneer's answer before it.
#[agent(name = "cory/observer", input = Proposal, output = Answer, prompt = "../prompts/cory/observer.md")]
pub struct Observer;

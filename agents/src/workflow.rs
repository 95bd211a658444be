//! The agent of workflows that are written in a configuration.

use maverl::prelude::*;

/// What a node of a workflow asks, its template filled in.
#[derive(Input, Debug, Clone, PartialEq)]
pub struct Work {
    /// The whole of it.
    #[input(observation)]
    pub text: String,
}

/// Says what a node of a workflow asks for.
#[agent(name = "workflow/worker", input = Work, output = String, prompt_text = "{{ text }}")]
pub struct Worker;

//! The agent of workflows that are written in a configuration.

use maverl::prelude::*;

/// What a node of a workflow asks, its template filled in.
#[derive(Input, Debug, Clone, PartialEq)]
pub struct Work {
    /// Who it is, told before the conversation; empty for nothing.
    pub role: String,
    /// The whole of what is asked.
    #[input(observation)]
    pub text: String,
}

/// Says what a node of a workflow asks for.
#[agent(name = "workflow/worker")]
pub struct Worker;

impl Agent for Worker {
    type Input = Work;
    type Output = String;

    fn prompt(&self, work: &Work) -> Prompt {
        let mut prompt = Prompt::default();
        prompt.push_observation(&work.text);
        match work.role.as_str() {
            "" => prompt,
            role => prompt.with_system(role),
        }
    }
}

//! The agent of workflows that are declared in a configuration.

use maverl::prelude::*;

/// Input of a workflow node, with its template filled in.
#[derive(Input, Debug, Clone, PartialEq)]
pub struct Work {
    /// Instructions before the conversation; empty for none.
    pub role: String,
    /// The full prompt.
    #[input(observation)]
    pub text: String,
}

/// Replies to the prompt of a workflow node.
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

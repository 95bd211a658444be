use maverl::prelude::*;

struct NotAnAgent;

#[orchestra(name = "math/flow", agents(NotAnAgent))]
struct Flow;

impl Orchestra for Flow {
    async fn run(&self, _: &Task, _: &Team<Self>) -> Result<Option<String>, AskError> {
        Ok(None)
    }
}

fn main() {}

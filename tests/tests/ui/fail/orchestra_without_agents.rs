use maverl::prelude::*;

#[orchestra(name = "math/flow", agent(Solver))]
struct Flow;

impl Orchestra for Flow {
    async fn run(&self, _: &Task, _: &Team<Self>) -> Result<Option<String>, AskError> {
        Ok(None)
    }
}

fn main() {}

use maverl::prelude::*;

#[derive(Input)]
struct Question {
    text: String,
    passages: Vec<String>,
}

#[agent(name = "math/solver", input = Question, output = String, prompt_text = "{{ text }}")]
struct Solver;

#[agent(name = "math/voter", input = Question, output = String, prompt_text = "{{ text }}")]
struct Voter;

#[orchestra(name = "math", agents(Solver, Solver, Voter[voters]), needs("Search"))]
#[derive(Default)]
struct Flow {
    n_voters: u32,
}

impl Orchestra for Flow {
    async fn run(&self, _: &Task, _: &Team<Self>) -> Result<Option<String>, AskError> {
        Ok(None)
    }
}

fn main() {}

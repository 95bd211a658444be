use maverl::prelude::*;

#[derive(Input)]
struct Question {
    text: String,
    passages: Vec<String>,
}

#[agent(name = "math/solver", input = Question, output = String, prompt_text = "{{ text }}")]
struct Solver;

#[agent(name = "math/critic", input = Question, output = String, prompt_text = "{{ text }}")]
struct Critic;

#[orchestra(name = "math/flow", agents(Solver))]
struct Flow;

impl Orchestra for Flow {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let question = Question { text: task.question.clone(), passages: Vec::new() };
        let _ = team.ask::<Critic>(&question);
        Ok(None)
    }
}

fn main() {}

use maverl::prelude::*;

#[derive(Input)]
struct Question {
    text: String,
    passages: Vec<String>,
}

#[agent(name = "math/voter", input = Question, output = String, prompt_text = "{{ text }}")]
struct Voter;

#[orchestra(name = "math/flow", agents(Voter[share]))]
#[derive(Default)]
struct Flow {
    share: f32,
}

impl Orchestra for Flow {
    async fn run(&self, _: &Task, _: &Team<Self>) -> Result<Option<String>, AskError> {
        Ok(None)
    }
}

fn main() {}

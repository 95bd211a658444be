use maverl::prelude::*;

#[derive(Input)]
struct Question {
    text: String,
    passages: Vec<String>,
}

#[agent(name = "math/solver", input = Question, output = String, prompt_text = "{{ text }}")]
struct Solver;

#[orchestra(name = "math/flow", agents(Solver))]
struct Flow;

fn main() {}

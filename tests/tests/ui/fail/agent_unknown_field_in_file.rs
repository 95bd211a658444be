use maverl::prelude::*;

#[derive(Input)]
struct Question {
    text: String,
    passages: Vec<String>,
}

#[agent(name = "math/verifier", input = Question, output = String, prompt = "prompts/unknown_field.md")]
struct Verifier;

fn main() {}

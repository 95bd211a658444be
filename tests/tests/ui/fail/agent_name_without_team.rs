use maverl::prelude::*;

#[derive(Input)]
struct Question {
    text: String,
    passages: Vec<String>,
}

#[agent(name = "verifier", input = Question, output = String, prompt_text = "{{ text }}")]
struct Verifier;

fn main() {}

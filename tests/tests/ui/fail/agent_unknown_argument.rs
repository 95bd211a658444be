use maverl::prelude::*;

#[derive(Input)]
struct Question {
    text: String,
    passages: Vec<String>,
}

#[agent(name = "math/verifier", input = Question, outptu = String, prompt_text = "{{ text }}")]
struct Verifier;

fn main() {}

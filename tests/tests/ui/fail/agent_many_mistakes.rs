use maverl::prelude::*;

#[derive(Input)]
struct Question {
    text: String,
    passages: Vec<String>,
}

#[agent(name = verifier, name = "math/verifier", input = "Question" output = String, promt = "x.md", prompt_text = "{{ }}")]
struct Verifier;

fn main() {}

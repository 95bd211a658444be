use maverl::prelude::*;

#[derive(Input)]
struct Question {
    text: String,
    passages: Vec<String>,
}

#[agent(
    name = "math/verifier",
    input = Question,
    output = String,
    prompt_text = "Question: {{ txet }}\nPassages: {{ passages }} {{ solution }}"
)]
struct Verifier;

fn main() {}

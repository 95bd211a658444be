use maverl::prelude::*;

#[derive(Input)]
struct Question {
    text: String,
    passages: Vec<String>,
}

#[agent(name = "math/verifier", input = Question, output = String, prompt_text = "{{ text }}")]
struct Verifier<T>(T);

fn main() {}

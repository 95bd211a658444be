use maverl::prelude::*;

#[derive(Input)]
struct Question {
    text: String,
    passages: Vec<String>,
}

#[agent(name = "math/verifier", input = Question, output = String, prompt = "prompts/bad_placeholders.md")]
#[derive(Default)]
struct Verifier {
    tone: String,
}

fn main() {}

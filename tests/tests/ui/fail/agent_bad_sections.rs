use maverl::prelude::*;

#[derive(Input)]
struct Question {
    text: String,
    passages: Vec<String>,
}

#[agent(name = "math/verifier", input = Question, output = String, prompt_text = "# system\nBe strict.\n{{ text }}")]
struct Verifier;

fn main() {}

use maverl::prelude::*;

#[derive(Input)]
struct Question {
    text: String,
    passages: Vec<String>,
}

#[agent(name = "math/verifier", input = Question, output = String, prompt_text = "{{ agent.tnoe }} {{ text }}")]
#[derive(Default)]
struct Verifier {
    tone: String,
    words: u32,
}

fn main() {}

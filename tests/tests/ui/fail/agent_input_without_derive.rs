use maverl::prelude::*;

struct Question {
    text: String,
}

#[agent(name = "math/verifier", input = Question, output = String, prompt_text = "{{ text }}")]
struct Verifier;

fn main() {}

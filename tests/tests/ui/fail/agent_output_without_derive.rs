use maverl::prelude::*;

#[derive(Input)]
struct Question {
    text: String,
    passages: Vec<String>,
}

enum Verdict {
    Approve,
}

#[agent(name = "math/verifier", input = Question, output = Verdict, prompt_text = "{{ text }} {{ reply_format }}")]
struct Verifier;

fn main() {}

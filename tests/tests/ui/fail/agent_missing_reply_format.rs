use maverl::prelude::*;

#[derive(Input)]
struct Question {
    text: String,
    passages: Vec<String>,
}

#[derive(Reply)]
#[reply(tag = "verify")]
enum Verdict {
    Approve,
    Reject,
}

#[agent(name = "math/verifier", input = Question, output = Verdict, prompt_text = "{{ text }}")]
struct Verifier;

fn main() {}

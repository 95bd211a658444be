use maverl::prelude::*;

#[derive(Input)]
struct Question {
    #[input(observed)]
    text: String,
    #[input]
    passages: Vec<String>,
    reply_format: String,
}

fn main() {}

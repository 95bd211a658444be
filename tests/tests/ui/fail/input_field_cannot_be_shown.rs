use maverl::prelude::*;

struct Document;

#[derive(Input)]
struct Question {
    text: String,
    source: Option<Document>,
}

fn main() {}

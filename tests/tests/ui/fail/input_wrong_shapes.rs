use maverl::prelude::*;

#[derive(Input)]
struct Question(String);

#[derive(Input)]
struct Nothing;

#[derive(Input)]
enum Either {
    Text,
}

fn main() {}

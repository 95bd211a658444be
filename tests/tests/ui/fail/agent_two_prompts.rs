use maverl::prelude::*;

#[derive(Input)]
struct Work {
    text: String,
}

// `prompts/twice.md` is in the package and beside this file.
#[agent(Work -> Answer)]
struct Twice;

fn main() {}

use maverl::prelude::*;

#[derive(Input)]
struct Work {
    text: String,
}

#[agent(Work -> Answer)]
struct Reader;

#[agent(Work -> Answer)]
struct Speaker;

fn main() {}

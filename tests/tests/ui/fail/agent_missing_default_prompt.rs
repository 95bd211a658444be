use maverl::prelude::*;

#[derive(Input)]
struct Work {
    text: String,
}

#[agent(Work -> Answer)]
struct Writer;

#[agent(Work -> Answer, name = "search/searcher")]
struct Searcher;

fn main() {}

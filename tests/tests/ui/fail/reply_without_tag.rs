use maverl::prelude::*;

#[derive(Reply)]
enum Verdict {
    Approve,
    Reject,
}

#[derive(Reply)]
struct SearchQuery(String);

fn main() {}

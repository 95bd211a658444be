use maverl::prelude::*;

#[derive(Reply)]
#[reply(tag = "verify")]
enum Verdict {
    Approve,
    Reject(String),
}

fn main() {}

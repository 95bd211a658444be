use maverl::prelude::*;

#[derive(Reply)]
#[reply(tag = "verify")]
enum Verdict {
    #[reply("approve")]
    Approve,
    #[reply("APPROVE")]
    Accept,
    #[reply(approve)]
    Agree,
    #[reply("")]
    Empty,
}

fn main() {}

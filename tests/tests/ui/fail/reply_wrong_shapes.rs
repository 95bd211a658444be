use maverl::prelude::*;

#[derive(Reply)]
#[reply(tag = "done")]
struct Done;

#[derive(Reply)]
#[reply(tag = "pair")]
struct Pair(String, String);

#[derive(Reply)]
#[reply(tag = "never")]
enum Never {}

fn main() {}

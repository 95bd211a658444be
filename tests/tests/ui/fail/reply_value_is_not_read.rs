use maverl::prelude::*;

struct Point;

#[derive(Reply)]
#[reply(tag = "point")]
struct Where(Point);

fn main() {}

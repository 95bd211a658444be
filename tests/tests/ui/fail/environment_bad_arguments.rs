use maverl::prelude::*;

#[environment(name = "Web Search", offer("search"))]
struct World(u32);

fn main() {}

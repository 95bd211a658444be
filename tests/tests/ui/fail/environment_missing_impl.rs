use maverl::prelude::*;

/// A world that does nothing.
#[environment(name = "world")]
struct World;

fn main() {}

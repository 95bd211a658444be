use maverl::prelude::*;

#[agent(name = "math/verifier")]
struct Verifier;

fn main() {}

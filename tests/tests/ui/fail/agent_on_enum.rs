use maverl::prelude::*;

#[agent(name = "math/verifier")]
enum Verifier {
    Strict,
}

fn main() {}

use maverl::prelude::*;

#[reward]
fn brevity(episode: &Episode) -> f64 {
    episode.turns.len() as f64
}

fn main() {}

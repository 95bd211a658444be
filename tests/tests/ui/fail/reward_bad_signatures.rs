use maverl::prelude::*;

#[reward]
async fn brevity(episode: &Episode) -> Rewards {
    Rewards::episode(episode.turns.len() as f64)
}

#[reward(name = "Too Long")]
fn length() {}

#[reward]
fn generic<T>(_: &Episode, _: T) -> Rewards {
    Rewards::none()
}

#[reward]
struct NoFunction;

fn main() {}

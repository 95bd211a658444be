//! Generated steps, on which a kernel is compared with the estimator in Rust.

use super::{RewardColumn, RewardedStep};
use crate::rng::SplitMix64;

/// Shape of a generated step.
struct StepShape {
    name: &'static str,
    tasks: usize,
    episodes: usize,
    seats: usize,
    /// Turns of an episode; fewer in some, if `ragged`.
    turns: usize,
    ragged: bool,
    /// Rewards are 0 or 1.
    binary: bool,
    /// Rewards are all the same.
    flat: bool,
    /// There are values of a critic, one for each token.
    valued: bool,
}

const PLAIN: StepShape = StepShape {
    name: "plain",
    tasks: 3,
    episodes: 4,
    seats: 2,
    turns: 4,
    ragged: false,
    binary: false,
    flat: false,
    valued: false,
};

/// Steps that an estimator must be able to take, with their names: one row, groups of one, equal rewards, rewards of 0 and
/// 1, seats that speak unequally often, values of a critic, and more rows than a block of a GPU has threads.
///
/// The same steps on every machine. Rewards and values are numbers of `f32`.
pub fn generated_steps() -> Vec<(&'static str, RewardedStep<'static>)> {
    steps(|shape| shape.valued.then_some(true))
}

/// The same steps, with values in all of them or in none: those that an estimator meets in a run. `by_token` is true for a
/// value for each token, false for one for each turn, and none without a critic.
#[cfg(feature = "cuda")]
pub(crate) fn steps_of_a_run(by_token: Option<bool>) -> Vec<(&'static str, RewardedStep<'static>)> {
    steps(|_| by_token)
}

fn steps(
    values: impl Fn(&StepShape) -> Option<bool>,
) -> Vec<(&'static str, RewardedStep<'static>)> {
    let shapes = [
        StepShape { name: "one row", tasks: 1, episodes: 1, seats: 1, turns: 1, ..PLAIN },
        StepShape { name: "one agent", seats: 1, turns: 1, episodes: 8, ..PLAIN },
        StepShape { name: "groups of one", tasks: 7, episodes: 1, seats: 1, turns: 1, ..PLAIN },
        PLAIN,
        StepShape { name: "rewards of 0 and 1", binary: true, ..PLAIN },
        StepShape { name: "equal rewards", flat: true, ..PLAIN },
        StepShape { name: "ragged", seats: 3, turns: 7, ragged: true, ..PLAIN },
        StepShape { name: "values of a critic", valued: true, ragged: true, ..PLAIN },
        StepShape { name: "many rows", tasks: 11, episodes: 8, seats: 3, turns: 6, ..PLAIN },
    ];
    let mut steps = Vec::with_capacity(shapes.len());
    for (shape, seed) in shapes.iter().zip(1..) {
        steps.push((shape.name, step(shape, &mut SplitMix64::new(seed), values(shape))));
    }
    steps
}

fn step(
    shape: &StepShape,
    random: &mut SplitMix64,
    values_by_token: Option<bool>,
) -> RewardedStep<'static> {
    let mut step = RewardedStep::default();
    let mut columns = [Vec::new(), Vec::new()];
    let mut values = Vec::new();
    for episode in 0..shape.tasks * shape.episodes {
        let task = episode / shape.episodes;
        let score = match (shape.flat, shape.binary) {
            (true, _) => 0.5,
            (false, true) => random.index(2) as f64,
            (false, false) => number(random),
        };
        step.turn_parts.push(Vec::new());
        let fewer = if shape.ragged { random.index(shape.turns) } else { 0 };
        for turn in 0..shape.turns - fewer {
            let seat = turn % shape.seats;
            let part = if shape.flat || shape.binary { 0.0 } else { number(random) / 4.0 };
            let length = 1 + random.index(5);
            columns[0].push(score);
            columns[1].push(part);
            values.push((0..length).map(|_| number(random)).collect::<Vec<f64>>());
            step.rewards.push(score + part);
            step.seats.push(seat);
            step.turns.push(turn);
            step.tasks.push(task);
            step.episodes.push(episode);
            step.lengths.push(length);
            step.units.push(step.units.len());
            step.groups.push(task * shape.seats + seat);
            step.prompts.push([&[1, 2, 3][..], &[1, 2, 4]][turn % 2]);
            step.seat_parts.push(0.0);
            step.turn_parts[episode].push(part);
        }
    }
    let names = ["score", "part"].into_iter().zip(columns);
    step.parts =
        names.map(|(name, values)| RewardColumn { name: name.to_owned(), values }).collect();
    if values_by_token == Some(false) {
        values.iter_mut().for_each(|row| row.truncate(1));
    }
    step.values = values_by_token.map(|_| values);
    step.earned.clone_from(&step.rewards);
    step.recorded.clone_from(&step.rewards);
    step
}

/// A number from −1 to 1 with few digits, so that sums of some are exact in `f32`.
fn number(random: &mut SplitMix64) -> f64 {
    random.index(257) as f64 / 128.0 - 1.0
}

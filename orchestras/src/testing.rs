//! Teams with fixed replies, for the tests of orchestras.
#![allow(clippy::unwrap_used)]

use maverl::env::math::MathEnvironment;
use maverl::prelude::*;
use maverl::rollout::Scripted;
use maverl::trajectory::{Outcome, RewardOf};
use serde_json::{Value, json};

/// Returns a question whose answer is 42.
pub(crate) fn task() -> Task {
    Task {
        id: "1".to_owned(),
        source: "test".to_owned(),
        question: "What is 6 times 7?".to_owned(),
        data: [("answers".to_owned(), json!(["42"]))].into_iter().collect(),
    }
}

/// Plays an episode in which a seat with a prompt replies with the result of `line`. It must end scored.
pub(crate) fn play(
    orchestra: impl OrchestraName,
    line: impl Fn(&str, &str) -> String + Send + Sync + 'static,
) -> Episode {
    play_on(orchestra, &[], line)
}

/// Same as [`play`] on a task with further data.
pub(crate) fn play_on(
    orchestra: impl OrchestraName,
    data: &[(&str, Value)],
    line: impl Fn(&str, &str) -> String + Send + Sync + 'static,
) -> Episode {
    let mut task = task();
    task.data.extend(data.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    let episode = played(orchestra, &task, line);
    assert!(episode.score().is_some(), "{:?}", episode.outcome);
    episode
}

/// Same as [`play`] with any outcome.
pub(crate) fn ended(
    orchestra: impl OrchestraName,
    line: impl Fn(&str, &str) -> String + Send + Sync + 'static,
) -> Episode {
    played(orchestra, &task(), line)
}

fn played(
    orchestra: impl OrchestraName,
    task: &Task,
    line: impl Fn(&str, &str) -> String + Send + Sync + 'static,
) -> Episode {
    let script = move |seat: &Seat, messages: &[maverl::trajectory::Message]| {
        line(&seat.to_string(), &messages.last().unwrap().content)
    };
    Scripted::new(orchestra, MathEnvironment::default(), script).play_blocking(task)
}

/// Formats `<answer>..</answer>`.
pub(crate) fn answer(text: &str) -> String {
    format!("<answer>{text}</answer>")
}

/// Returns the seats of the turns, in order.
pub(crate) fn seats(episode: &Episode) -> Vec<String> {
    episode.turns.iter().map(|turn| turn.seat.to_string()).collect()
}

/// Returns the reward parts of a name: the recipient (a seat, or the seat of a turn), and the value.
pub(crate) fn paid(episode: &Episode, name: &str) -> Vec<(String, f64)> {
    let whom = |of: &RewardOf| match of {
        RewardOf::Episode => "all".to_owned(),
        RewardOf::Seat(seat) => format!("all of {seat}"),
        RewardOf::Turn(turn) => episode.turns[*turn].seat.to_string(),
    };
    let parts = episode.rewards.iter().filter(|part| part.name == name);
    parts.map(|part| (whom(&part.of), part.value)).collect()
}

/// Returns true if the message of an unscored episode's fault contains these words.
pub(crate) fn fails_with(episode: &Episode, words: &str) -> bool {
    matches!(&episode.outcome, Outcome::Unscored(fault) if fault.message.contains(words))
}

/// Returns the metric that the orchestra logged.
pub(crate) fn noted(episode: &Episode, name: &str) -> Option<f64> {
    episode.score()?.metrics.get(name)?.as_f64()
}

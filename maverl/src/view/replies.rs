//! Replies of the seats of a team: their last lines, by the outcome of the episode. A seat with few of them, such
//! as a verifier, says something of use only if they differ between solved and unsolved episodes.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::api::{self, Answer};
use super::hacked;
use super::http::Response;
use super::index::counts::Played;
use super::parting::{causes, lost, read_turns};
use super::run::Run;
use super::team::WINDOW;
use crate::run_dir::{TRAIN, Texts};

/// Maximum number of episodes that are read at either end of a run.
const EPISODES: usize = 640;
/// Maximum number of lines of a seat that are told apart.
const DISTINCT: usize = 4096;
/// Number of lines of a seat in the answer.
pub(super) const LINES: usize = 5;
/// Number of characters of a line.
const LENGTH: usize = 80;

/// Number of turns in episodes that solved their task, and in others.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Turns {
    pub(super) solved: u64,
    pub(super) unsolved: u64,
}

impl Turns {
    fn add(&mut self, solved: bool) {
        *if solved { &mut self.solved } else { &mut self.unsolved } += 1;
    }

    pub(super) fn all(self) -> u64 {
        self.solved + self.unsolved
    }
}

/// Replies of a seat.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) turns: Turns,
    lines: BTreeMap<String, Turns>,
}

impl Said {
    pub(super) fn add(&mut self, reply: &str, solved: bool) {
        self.turns.add(solved);
        let line = last_line(reply);
        if self.lines.len() < DISTINCT || self.lines.contains_key(&line) {
            self.lines.entry(line).or_default().add(solved);
        }
    }

    /// Returns the last lines, the most frequent ones first.
    pub(super) fn ranked(&self) -> Vec<(&str, &Turns)> {
        let mut lines: Vec<(&str, &Turns)> =
            self.lines.iter().map(|(line, turns)| (line.as_str(), turns)).collect();
        lines.sort_by(|(a, x), (b, y)| y.all().cmp(&x.all()).then(a.cmp(b)));
        lines
    }
}

/// Returns the last line of a reply that is not blank; its end, if it is long.
pub(super) fn last_line(reply: &str) -> String {
    let line = reply.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let skipped = line.chars().count().saturating_sub(LENGTH);
    let end: String = line.chars().skip(skipped).collect();
    if skipped > 0 { format!("… {end}") } else { end }
}

/// Replies of each seat.
#[derive(Debug, Default)]
struct Team {
    seats: BTreeMap<String, Said>,
    /// Number of episodes that cannot be read.
    unreadable: usize,
}

/// Reads the replies of episodes, at most [`EPISODES`] of them.
fn read(run: &Run, played: &[Played]) -> Team {
    let episodes: Vec<(usize, &Played)> = played.iter().take(EPISODES).enumerate().collect();
    let mut team = Team::default();
    team.unreadable = read_turns(run, &episodes, |i, texts| {
        if let Texts::Turn { seat, reply, .. } = texts {
            team.seats.entry(seat.to_string()).or_default().add(&reply, played[i].solved);
        }
    });
    team
}

/// Returns the most frequent last lines of each seat in the last steps, with their numbers in the first ones.
pub(super) fn answer(run: &Run) -> Answer {
    let steps = run.now().index.steps(TRAIN);
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
        return Ok(Response::json(
            &object!({ "early": Value::Null, "late": Value::Null, "seats": object!({}), "lost": Value::Null, "reward": Value::Null }),
        ));
    };
    let late = [steps[steps.len().saturating_sub(WINDOW)], *last];
    let early = [*first, steps[WINDOW.min(steps.len()) - 1]];
    let early = (early[1] < late[0]).then_some(early);
    let played = |steps| run.now().index.played(TRAIN, steps);
    let before = early.map(|steps| read(run, &played(steps))).unwrap_or_default();
    let last = played(late);
    let now = read(run, &last);
    let lost = lost(&causes(run, &last).into_iter().map(|(cause, _)| cause).collect::<Vec<_>>());
    let seat =
        |(seat, said): (&String, &Said)| (seat.clone(), of_seat(said, before.seats.get(seat)));
    let seats: BTreeMap<String, Value> = now.seats.iter().map(seat).collect();
    let reward = hacked::told(&run.now().index.team(TRAIN, late), &now.seats);
    let unreadable = before.unreadable + now.unreadable;
    api::bounded(&object!({
        "early": early, "late": late, "seats": seats, "unreadable": unreadable, "lost": lost, "reward": reward,
    }))
}

/// Returns the replies of a seat in the last and the first steps.
fn of_seat(late: &Said, early: Option<&Said>) -> Value {
    let lines = late.ranked();
    let before = |line: &str| early.map(|said| said.lines.get(line).copied().unwrap_or_default());
    let line = |(line, turns): &(&str, &Turns)| object!({ "text": line, "late": turns, "early": before(line) });
    object!({
        "late": late.turns,
        "early": early.map(|said| said.turns),
        "distinct": lines.len(),
        "lines": lines.iter().take(LINES).map(line).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replies_are_counted_by_their_last_line_and_the_outcome() {
        assert_eq!(last_line("I think.\n\n <verify>yes</verify> \n\n"), "<verify>yes</verify>");
        assert_eq!(last_line(" \n"), "");
        let long = last_line(&format!("{}é", "x".repeat(200)));
        assert_eq!((long.chars().count(), long.ends_with("xé")), (LENGTH + 2, true));
        let (mut late, mut early) = (Said::default(), Said::default());
        for (reply, solved) in [("yes", true), ("yes", false), ("yes", false), ("no", false)] {
            late.add(reply, solved);
        }
        early.add("a reason\nno", false);
        let found = of_seat(&late, Some(&early));
        assert_eq!(found["late"], json!({ "solved": 1, "unsolved": 3 }));
        assert_eq!(found["distinct"], 2);
        let yes = json!({ "text": "yes", "late": { "solved": 1, "unsolved": 2 }, "early": { "solved": 0, "unsolved": 0 } });
        assert_eq!(found["lines"][0], yes);
        assert_eq!(found["lines"][1]["early"], json!({ "solved": 0, "unsolved": 1 }));
        assert_eq!(of_seat(&late, None)["lines"][0]["early"], Value::Null);
    }
}

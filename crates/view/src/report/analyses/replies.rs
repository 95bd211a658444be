//! Replies of the seats of a team: their last lines, by the outcome of the episode, or by the answer that the seat saw. A
//! seat with few of them, such as a verifier, says something of use only if they differ between right and wrong.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::compact::collected;
use crate::compact::sort;
use crate::pages::api::{self, Answer};
use crate::report::analyses::answers::{Answers, Spoke, Spoken, hash, parts};
use crate::report::analyses::divergence::{causes, lost, read_texts};
use crate::report::analyses::fall;
use crate::report::analyses::hacking::{self, Hacked};
use crate::report::analyses::team::WINDOW;
use crate::report::rows::index::counts::Played;
use crate::report::rows::run::Run;
use maverl::run_dir::{TRAIN, Texts};
use maverl::trajectory::{RewardOf, RewardPart};

/// Maximum number of episodes that are read at either end of a run.
const EPISODES: usize = 640;
/// Maximum number of lines of a seat that are told apart.
const DISTINCT: usize = 4096;
/// Number of lines of a seat in the answer.
pub(crate) const LINES: usize = 5;
/// Share of the turns that these lines must have.
const FEW: f64 = 0.7;
/// Number of turns after right answers, and of those after wrong ones, from which on turns are split by them.
const SEEN: u64 = 5;
/// Number of characters of a line.
const LENGTH: usize = 80;

/// Number of turns in episodes that solved their task, and in others; or after right answers, and after wrong ones.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Turns {
    pub(crate) solved: u64,
    pub(crate) unsolved: u64,
}

impl Turns {
    fn add(&mut self, solved: bool) {
        *if solved { &mut self.solved } else { &mut self.unsolved } += 1;
    }

    pub(crate) fn all(self) -> u64 {
        self.solved + self.unsolved
    }
}

/// Turns of a seat, split in two.
#[derive(Debug, Default)]
pub(crate) struct Split {
    pub(crate) turns: Turns,
    /// Sums of the reward parts of solved and of unsolved turns.
    pub(crate) parts: [f64; 2],
    lines: BTreeMap<String, Turns>,
}

impl Split {
    fn add(&mut self, line: &str, solved: bool, parts: f64) {
        self.turns.add(solved);
        self.parts[usize::from(!solved)] += parts;
        if let Some(turns) = self.lines.get_mut(line) {
            turns.add(solved);
        } else if self.lines.len() < DISTINCT {
            self.lines.entry(line.to_owned()).or_default().add(solved);
        }
    }

    /// Returns true if the most frequent lines have most of the turns. Replies that mostly differ are not compared.
    pub(crate) fn has_few_lines(&self) -> bool {
        let few: u64 = self.ranked().iter().take(LINES).map(|(_, turns)| turns.all()).sum();
        few > 0 && few as f64 >= FEW * self.turns.all() as f64
    }

    /// Returns the last lines, the most frequent ones first.
    pub(crate) fn ranked(&self) -> Vec<(&str, &Turns)> {
        let mut lines: Vec<(&str, &Turns)> =
            self.lines.iter().map(|(line, turns)| (line.as_str(), turns)).collect();
        sort(&mut lines, |(a, x), (b, y)| y.all().cmp(&x.all()).then(a.cmp(b)));
        lines
    }
}

/// Replies of a seat.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// By the outcome of the episode.
    pub(crate) outcome: Split,
    /// By the answer before the turn, where it is known to be right or wrong.
    seen: Split,
}

impl Said {
    pub(crate) fn add(&mut self, reply: &str, solved: bool, seen: Option<bool>, parts: f64) {
        let line = last_line(reply);
        self.outcome.add(&line, solved, parts);
        if let Some(right) = seen {
            self.seen.add(&line, right, parts);
        }
    }

    /// Returns the turns by the answer that the seat saw, if enough right and wrong ones are known.
    pub(crate) fn seen(&self) -> Option<&Split> {
        let Turns { solved, unsolved } = self.seen.turns;
        (solved.min(unsolved) >= SEEN).then_some(&self.seen)
    }
}

/// Returns the last line of a reply that is not blank; its end, if it is long.
pub(crate) fn last_line(reply: &str) -> String {
    let line = reply.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let skipped = line.chars().count().saturating_sub(LENGTH);
    let end: String = line.chars().skip(skipped).collect();
    if skipped > 0 { format!("… {end}") } else { end }
}

/// Replies of each seat.
#[derive(Debug, Default)]
struct Team {
    seats: BTreeMap<String, Said>,
    /// Description of the answers that were replaced.
    replaced: Value,
    /// Number of episodes that cannot be read.
    unreadable: usize,
}

/// Texts of an episode. Those of its turns are last lines.
#[derive(Debug, Default)]
struct EpisodeTexts {
    lines: Vec<String>,
    rewards: Vec<RewardPart>,
}

/// Reads the replies of episodes, at most [`EPISODES`] of them.
fn read(run: &Run, played: &[Played]) -> Team {
    let episodes: Vec<(usize, &Played)> = played.iter().take(EPISODES).enumerate().collect();
    let spoken = |(_, one): &(usize, &Played)| Spoken {
        task: one.task,
        solved: one.solved,
        ..Spoken::default()
    };
    let mut spoken: Vec<Spoken> = episodes.iter().map(spoken).collect();
    let mut kept: Vec<EpisodeTexts> = episodes.iter().map(|_| EpisodeTexts::default()).collect();
    let unreadable = read_texts(
        run,
        &episodes,
        |_| true,
        |i, texts| match texts {
            Texts::Episode { answer, rewards, .. } => {
                spoken[i].answer = answer.as_deref().map(hash);
                kept[i].rewards = rewards;
            }
            Texts::Turn { seat, reply, error, .. } => {
                let parts = if error.is_none() { parts(&reply) } else { BTreeMap::new() };
                spoken[i].turns.push(Spoke { seat: seat.to_string(), parts, ..Spoke::default() });
                kept[i].lines.push(last_line(&reply));
            }
        },
    );
    for (one, texts) in spoken.iter_mut().zip(&kept) {
        for (turn, (spoke, line)) in one.turns.iter_mut().zip(&texts.lines).enumerate() {
            let its = texts.rewards.iter().filter(|part| part.of == RewardOf::Turn(turn));
            spoke.line = hash(line);
            spoke.paid = (its.map(|part| part.value).sum::<f64>() * 1e6).round() as i64;
        }
    }
    let answers = Answers::new(&spoken);
    let mut seats: BTreeMap<String, Said> = BTreeMap::new();
    for (one, texts) in spoken.iter().zip(&kept) {
        let turns = one.turns.iter().zip(&texts.lines).zip(answers.seen(one));
        for (turn, ((spoke, line), seen)) in turns.enumerate() {
            let parts = sum(&texts.rewards, &spoke.seat, turn);
            seats.entry(spoke.seat.clone()).or_default().add(line, one.solved, seen, parts);
        }
    }
    Team { seats, replaced: answers.replaced(), unreadable }
}

/// Returns the sum of the reward parts of a turn of a seat.
fn sum(rewards: &[RewardPart], seat: &str, turn: usize) -> f64 {
    let its = rewards.iter().filter(|part| match &part.of {
        RewardOf::Episode => true,
        RewardOf::Seat(of) => of.to_string() == seat,
        RewardOf::Turn(of) => *of == turn,
    });
    its.map(|part| part.value).sum()
}

/// Statements on the replies of the last steps of a run.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    answer: Value,
    pub(crate) hacked: Vec<Hacked>,
}

/// Returns the most frequent last lines of each seat in the last steps, with their numbers in the first ones.
pub(crate) fn answer(run: &Run) -> Answer {
    api::bounded(&run.replies().answer)
}

/// Reads the replies of the last and the first steps.
pub(crate) fn found(run: &Run) -> Found {
    let steps = run.now().index.steps(TRAIN);
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
        let answer = object!({
            "early": Value::Null, "late": Value::Null, "seats": object!({}), "lost": Value::Null, "reward": Value::Null,
            "replaced": Value::Null, "fall": Value::Null,
        });
        return Found { answer, hacked: Vec::new() };
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
    let seats: BTreeMap<String, Value> = collected(now.seats.iter().map(seat));
    let sums = run.now().index.team(TRAIN, late);
    let (reward, hacked) = hacking::told(&sums, &now.seats);
    let unreadable = before.unreadable + now.unreadable;
    let fall = fall::told(run);
    let answer = object!({
        "early": early, "late": late, "seats": seats, "unreadable": unreadable, "lost": lost, "reward": reward,
        "replaced": now.replaced, "fall": fall,
    });
    Found { answer, hacked }
}

/// Returns the replies of a seat in the last and the first steps, in both split in the same way.
fn of_seat(late: &Said, early: Option<&Said>) -> Value {
    let seen = late.seen();
    let before = early.map(|said| if seen.is_some() { &said.seen } else { &said.outcome });
    let now = seen.unwrap_or(&late.outcome);
    let lines = now.ranked();
    let old = |line: &str| before.map(|of| of.lines.get(line).copied().unwrap_or_default());
    let line = |(line, turns): &(&str, &Turns)| object!({ "text": line, "late": turns, "early": old(line) });
    object!({
        "seen": seen.is_some(),
        "few": now.has_few_lines(),
        "late": now.turns,
        "early": before.map(|of| of.turns),
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
            late.add(reply, solved, None, 0.0);
        }
        early.add("a reason\nno", false, None, 0.0);
        let found = of_seat(&late, Some(&early));
        assert_eq!(found["late"], json!({ "solved": 1, "unsolved": 3 }));
        assert_eq!(found["distinct"], 2);
        let yes = json!({ "text": "yes", "late": { "solved": 1, "unsolved": 2 }, "early": { "solved": 0, "unsolved": 0 } });
        assert_eq!(found["lines"][0], yes);
        assert_eq!(found["lines"][1]["early"], json!({ "solved": 0, "unsolved": 1 }));
        assert_eq!(of_seat(&late, None)["lines"][0]["early"], Value::Null);
    }

    #[test]
    fn replies_are_counted_by_the_answer_that_the_seat_saw_if_enough_are_known() {
        let mut said = Said::default();
        said.add("no", false, None, 0.5);
        for i in 0..SEEN {
            said.add("no", i > 0, Some(true), 0.5);
        }
        assert_eq!(of_seat(&said, None)["late"], json!({ "solved": 4, "unsolved": 2 }));
        for _ in 0..SEEN {
            said.add("yes", true, Some(false), -0.5);
        }
        let found = of_seat(&said, Some(&Said::default()));
        assert_eq!(found["seen"], true);
        assert_eq!(found["late"], json!({ "solved": SEEN, "unsolved": SEEN }));
        assert_eq!(found["early"], json!({ "solved": 0, "unsolved": 0 }));
        assert_eq!(said.seen().map(|split| split.parts), Some([2.5, -2.5]));
    }
}

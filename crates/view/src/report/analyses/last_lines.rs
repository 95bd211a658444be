//! Last lines of the replies of a seat, counted by outcome.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::compact::sort_by;

/// Maximum number of lines of a seat that are counted apart.
const DISTINCT: usize = 4096;
/// Number of lines of a seat in the answer.
pub(crate) const LINES: usize = 5;
/// Share of the turns that these lines must have.
const FEW: f64 = 0.7;
/// Number of turns after right answers, and of those after wrong ones, from which on turns are split by them.
pub(super) const SEEN: u64 = 5;
/// Number of characters of a line.
pub(super) const LENGTH: usize = 80;

/// Number of turns in episodes that solved their task, and in others; or after right answers, and after wrong ones.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct TurnCounts {
    pub(crate) solved: u64,
    pub(crate) unsolved: u64,
}

impl TurnCounts {
    fn add(&mut self, solved: bool) {
        *if solved { &mut self.solved } else { &mut self.unsolved } += 1;
    }

    pub(crate) fn all_turns(self) -> u64 {
        self.solved + self.unsolved
    }
}

/// Turns of a seat by outcome, with their last lines.
#[derive(Debug, Default)]
pub(crate) struct OutcomeLines {
    pub(crate) turns: TurnCounts,
    /// Sums of the reward parts of solved and of unsolved turns.
    pub(crate) parts: [f64; 2],
    pub(crate) lines: BTreeMap<String, TurnCounts>,
}

impl OutcomeLines {
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
        let few: u64 =
            self.ranked_lines().iter().take(LINES).map(|(_, turns)| turns.all_turns()).sum();
        few > 0 && few as f64 >= FEW * self.turns.all_turns() as f64
    }

    /// Returns the last lines, the most frequent ones first.
    pub(crate) fn ranked_lines(&self) -> Vec<(&str, &TurnCounts)> {
        let mut lines: Vec<(&str, &TurnCounts)> =
            self.lines.iter().map(|(line, turns)| (line.as_str(), turns)).collect();
        sort_by(&mut lines, |(a, x), (b, y)| y.all_turns().cmp(&x.all_turns()).then(a.cmp(b)));
        lines
    }
}

/// Replies of a seat.
#[derive(Debug, Default)]
pub(crate) struct SeatReplies {
    /// By the outcome of the episode.
    pub(crate) outcome: OutcomeLines,
    /// By the answer before the turn, where it is known to be right or wrong.
    pub(crate) seen: OutcomeLines,
}

impl SeatReplies {
    pub(crate) fn add(&mut self, reply: &str, solved: bool, seen: Option<bool>, parts: f64) {
        let line = last_line(reply);
        self.outcome.add(&line, solved, parts);
        if let Some(right) = seen {
            self.seen.add(&line, right, parts);
        }
    }

    /// Returns the turns by the answer that the seat saw, if enough right and wrong ones are known.
    pub(crate) fn by_seen_answer(&self) -> Option<&OutcomeLines> {
        let TurnCounts { solved, unsolved } = self.seen.turns;
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

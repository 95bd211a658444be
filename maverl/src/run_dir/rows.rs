//! Rows of `episodes.jsonl`: an index of every episode of a run, in the order in which files were completed.
//!
//! A new field has `#[serde(default)]`, and is set in `new` and in `scan_rollouts`, which makes the rows of older runs.
//! The viewer's list is `web/page_episodes.js` of `crates/view`, and `Key` in `report/rows/selection.rs` sorts by it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::error::RunDirError;
use super::lines::{EpisodePosition, PackedLines};
use crate::task::Task;
use crate::trajectory::{Episode, FaultKind, Outcome, RewardOf, RewardPart, Seat};

/// Number of characters of an answer in a row.
const ANSWER: usize = 80;
/// Name of the stage of training episodes.
pub const TRAIN: &str = "train";

/// A row of `episodes.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpisodeRow {
    /// Number of the step, from 1; 0 for the evaluation before training.
    pub step: u64,
    /// Index of the episode in its file, from 0.
    pub n: u64,
    /// `train`, `before`, `before-greedy`, `after`, `after-greedy`, or `validation`. Names the file with `step`.
    pub stage: String,
    /// Place of the episode in its file.
    pub at: EpisodePosition,
    /// Source of the task.
    pub source: String,
    /// Id of the task.
    pub task: String,
    /// Index of the episode in the group of its task, from 0.
    pub index: u32,
    /// True if the episode solved its task; `None` if it is unscored.
    pub solved: Option<bool>,
    /// Reward of the environment's score; `None` if the episode is unscored.
    pub score: Option<f64>,
    /// Kind of the fault of an unscored episode.
    pub fault: Option<FaultKind>,
    /// First characters of the answer.
    pub answer: Option<String>,
    /// Number of sampled tokens.
    pub tokens: u64,
    /// Counts of each seat that was asked.
    pub seats: BTreeMap<Seat, SeatCounts>,
}

/// Counts of a seat in an episode: turns, malformed replies, truncated replies, sampled tokens, and the sum of the
/// rewards of its turns.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SeatCounts(pub u32, pub u32, pub u32, pub u64, pub f64);

/// A turn, as far as rows need it.
struct CountedRow<'t> {
    seat: &'t Seat,
    malformed: bool,
    truncated: bool,
    tokens: u64,
}

impl EpisodeRow {
    /// Returns the row of an episode.
    pub fn new(stage: &str, step: u64, n: u64, at: EpisodePosition, episode: &Episode) -> Self {
        let Episode { task, index, answer, outcome, .. } = episode;
        let mut row = Self::header(stage, step, n, at, (task, *index, answer.as_deref(), outcome));
        for (i, turn) in episode.turns.iter().enumerate() {
            let tokens = turn.tokens.as_ref().map_or(0, |tokens| tokens.completion.len() as u64);
            let (malformed, truncated) = (turn.error.is_some(), turn.truncated);
            let counted = CountedRow { seat: &turn.seat, malformed, truncated, tokens };
            row.add(i, &counted, &episode.rewards);
        }
        row
    }

    /// Returns the row of an episode without turns.
    fn header(
        stage: &str,
        step: u64,
        n: u64,
        at: EpisodePosition,
        (task, index, answer, outcome): (&Task, u32, Option<&str>, &Outcome),
    ) -> Self {
        let (solved, score, fault) = match outcome {
            Outcome::Scored(score) => (Some(score.solved), Some(score.reward), None),
            Outcome::Unscored(fault) => (None, None, Some(fault.kind)),
        };
        Self {
            step,
            n,
            stage: stage.to_owned(),
            at,
            source: task.source.clone(),
            task: task.id.clone(),
            index,
            solved,
            score,
            fault,
            answer: answer.map(|answer| answer.chars().take(ANSWER).collect()),
            tokens: 0,
            seats: BTreeMap::new(),
        }
    }

    /// Adds a turn. Its reward is that of [`Episode::turn_reward`].
    fn add(&mut self, index: usize, turn: &CountedRow<'_>, rewards: &[RewardPart]) {
        let parts = rewards.iter().filter(|part| match &part.of {
            RewardOf::Episode => true,
            RewardOf::Seat(of) => of == turn.seat,
            RewardOf::Turn(of) => *of == index,
        });
        let parts: f64 = parts.map(|part| part.value).sum();
        let reward = self.score.map_or(0.0, |score| score + parts);
        self.tokens += turn.tokens;
        let counts = self.seats.entry(turn.seat.clone()).or_default();
        counts.0 += 1;
        counts.1 += u32::from(turn.malformed);
        counts.2 += u32::from(turn.truncated);
        counts.3 += turn.tokens;
        counts.4 += reward;
    }
}

/// A line of a file of episodes, as far as rows need it. Numbers of token arrays are counted and not kept.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "one line is held at a time")]
enum Line {
    Episode {
        task: Task,
        index: u32,
        answer: Option<String>,
        outcome: Outcome,
        rewards: Vec<RewardPart>,
        turns: usize,
    },
    Turn {
        turn: TurnRow,
    },
}

#[derive(Deserialize)]
struct TurnRow {
    seat: Seat,
    error: Option<IgnoredAny>,
    truncated: bool,
    tokens: Option<TokenRow>,
}

#[derive(Deserialize)]
struct TokenRow {
    completion: Vec<IgnoredAny>,
}

/// Makes the rows of a file of episodes of a run that has none, one episode in memory at a time. Calls `found` for each
/// row; the file is abandoned when it returns false.
///
/// # Errors
///
/// If the file cannot be read, or a line of it is invalid.
pub fn scan_rollouts(
    path: &Path,
    stage: &str,
    step: u64,
    mut found: impl FnMut(EpisodeRow) -> bool,
) -> Result<(), RunDirError> {
    let mut lines = PackedLines::open(path)?;
    let (mut at, mut n) = (0, 0);
    while let Some(line) = lines.next()? {
        let line = serde_json::from_slice(&line).map_err(|error| lines.damaged_line(error));
        let Line::Episode { task, index, answer, outcome, rewards, turns } = line? else {
            return Err(lines.damaged_line("a turn without episode"));
        };
        let header = (&task, index, answer.as_deref(), &outcome);
        let mut row = EpisodeRow::header(stage, step, n, [0, at], header);
        for i in 0..turns {
            let line = lines.next()?;
            let line = line.ok_or_else(|| lines.damaged_line("the episode lacks turns"))?;
            let line = serde_json::from_slice(&line);
            let Line::Turn { turn } = line.map_err(|error| lines.damaged_line(error))? else {
                return Err(lines.damaged_line("the episode before it lacks turns"));
            };
            let TurnRow { seat, error, truncated, tokens } = &turn;
            let tokens = tokens.as_ref().map_or(0, |tokens| tokens.completion.len() as u64);
            let (malformed, truncated) = (error.is_some(), *truncated);
            row.add(i, &CountedRow { seat, malformed, truncated, tokens }, &rewards);
        }
        if !found(row) {
            return Ok(());
        }
        (at, n) = (lines.bytes, n + 1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::run_dir::tests::episode;
    use crate::run_dir::{read_episode, write_rollouts};
    use crate::trajectory::Fault;

    #[test]
    fn a_row_has_the_numbers_of_its_episode_however_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step-000003.jsonl.zst");
        let mut scored = episode("facts/1", 2, true, 3);
        scored.turns[1].seat = Seat::at("t/b", 1);
        scored.turns[1].error = Some("no block".into());
        scored.turns[2].truncated = true;
        let part = |value, of| RewardPart { name: "part".into(), value, of };
        scored.rewards = vec![part(-0.25, RewardOf::Turn(1)), part(0.5, RewardOf::Episode)];
        scored.answer = Some("ä".repeat(200));
        let mut unscored = episode("facts/2", 0, false, 1);
        unscored.outcome = Outcome::Unscored(Fault::new(FaultKind::Timeout, "600 s"));
        let episodes = [scored, unscored];
        write_rollouts(&path, &episodes).unwrap();
        let mut rows = Vec::new();
        scan_rollouts(&path, TRAIN, 3, |row| {
            rows.push(row);
            true
        })
        .unwrap();
        for (n, (row, episode)) in rows.iter().zip(&episodes).enumerate() {
            assert_eq!(*row, EpisodeRow::new(TRAIN, 3, n as u64, row.at, episode));
            assert_eq!(&read_episode(&path, row.at).unwrap(), episode);
            let text = serde_json::to_string(row).unwrap();
            assert_eq!(serde_json::from_str::<EpisodeRow>(&text).unwrap(), *row);
        }
        assert_eq!(rows[0].seats[&Seat::at("t/b", 1)], SeatCounts(1, 1, 0, 2, 1.25));
        assert_eq!(rows[0].seats[&Seat::only("t/a")], SeatCounts(2, 0, 1, 4, 3.0));
        assert_eq!(rows[0].answer.as_ref().unwrap().chars().count(), ANSWER);
        assert_eq!((rows[1].score, rows[1].fault), (None, Some(FaultKind::Timeout)));
        assert_eq!(rows[1].seats[&Seat::only("t/a")].4, 0.0);
    }
}

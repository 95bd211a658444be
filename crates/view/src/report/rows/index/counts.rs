//! Sums over the rows of steps: by seat, and by task.

use std::collections::BTreeMap;

use serde::Serialize;

use super::location::RowLocation;
use super::{Cell, IndexRow, RowIndex, SCORED, SOLVED};
use crate::compact::{collect_into, sort_by};

/// Sums over the scored episodes of some steps.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
pub(crate) struct TeamCounts {
    /// First and last step.
    pub(crate) steps: [u32; 2],
    /// Number of scored episodes.
    pub(crate) episodes: usize,
    /// Number of solved episodes.
    pub(crate) solved: usize,
    /// Sum of scores.
    pub(crate) score: f64,
    /// Sums of each seat, by name.
    pub(crate) seats: BTreeMap<String, SeatSums>,
}

impl TeamCounts {
    pub(crate) fn mean_score(&self) -> f64 {
        self.score / self.episodes.max(1) as f64
    }
}

/// Sums of a seat.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
pub(crate) struct SeatSums {
    /// Episodes that solved their task.
    pub(crate) solved: OutcomeSums,
    /// Episodes that did not.
    pub(crate) unsolved: OutcomeSums,
}

/// Sums of a seat over the episodes of one outcome.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
pub(crate) struct OutcomeSums {
    /// Episodes in which the seat was asked.
    pub(crate) episodes: usize,
    /// Episodes in which one of its replies was malformed.
    pub(crate) failed: usize,
    pub(crate) turns: u64,
    pub(crate) malformed: u64,
    pub(crate) truncated: u64,
    pub(crate) tokens: u64,
    /// Sum of the rewards of its turns.
    pub(crate) reward: f64,
    /// The same without the score of the episode: reward parts and penalties.
    pub(crate) parts: f64,
}

/// A task of a step, and the same task in earlier steps.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TaskSums {
    /// Source and id.
    pub(crate) task: String,
    pub(crate) now: Attempts,
    /// Earlier steps; without episodes if the task is new.
    pub(crate) before: Attempts,
}

/// A scored episode: its location, and how it went.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Played {
    pub(crate) location: RowLocation,
    /// Number of its task.
    pub(crate) task: u32,
    pub(crate) score: f64,
    pub(crate) solved: bool,
    /// Seat with the most malformed replies, if there are any.
    pub(crate) malformed: Option<String>,
    /// Seat with the most truncated replies, if there are any.
    pub(crate) truncated: Option<String>,
}

/// Scored episodes of a task.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Attempts {
    pub(crate) episodes: usize,
    pub(crate) solved: usize,
    /// Sum of scores.
    pub(crate) score: f64,
}

impl Attempts {
    fn add_row(&mut self, row: &IndexRow) {
        self.episodes += 1;
        self.solved += usize::from(row.has_flag(SOLVED));
        self.score += row.score;
    }

    /// Returns the mean score; 0 without episodes.
    pub(crate) fn mean_score(self) -> f64 {
        self.score / self.episodes.max(1) as f64
    }
}

impl RowIndex {
    /// Returns the scored rows of steps of a stage.
    fn scored_rows(&self, stage: &str, [first, last]: [u32; 2]) -> impl Iterator<Item = &IndexRow> {
        let stage = self.stages.find_number(stage);
        self.rows.iter().filter(move |row| {
            Some(u32::from(row.stage)) == stage
                && (first..=last).contains(&row.step)
                && row.has_flag(SCORED)
        })
    }

    /// Returns the sums over steps of a stage.
    pub(crate) fn team_sums(&self, stage: &str, steps: [u32; 2]) -> TeamCounts {
        let mut team = TeamCounts { steps, ..TeamCounts::default() };
        let mut seats = vec![SeatSums::default(); self.seats.names.len()];
        for row in self.scored_rows(stage, steps) {
            let solved = row.has_flag(SOLVED);
            team.episodes += 1;
            team.solved += usize::from(solved);
            team.score += row.score;
            for cell in self.cells_of(row) {
                let sums = &mut seats[usize::from(cell.seat)];
                let sums = if solved { &mut sums.solved } else { &mut sums.unsolved };
                sums.episodes += 1;
                sums.failed += usize::from(cell.malformed > 0);
                sums.turns += u64::from(cell.turns);
                sums.malformed += u64::from(cell.malformed);
                sums.truncated += u64::from(cell.truncated);
                sums.tokens += u64::from(cell.tokens);
                sums.reward += f64::from(cell.reward);
                sums.parts += f64::from(cell.reward) - f64::from(cell.turns) * row.score;
            }
        }
        let named = self.seats.names.iter().cloned().zip(seats);
        team.seats = collect_into(
            named.filter(|(_, sums)| sums.solved.episodes + sums.unsolved.episodes > 0),
        );
        team
    }

    /// Returns the scored episodes of steps of a stage.
    pub(crate) fn played_episodes(&self, stage: &str, steps: [u32; 2]) -> Vec<Played> {
        self.scored_rows(stage, steps)
            .map(|row: &IndexRow| {
                let IndexRow { stage, step, n, frame, at, task, score, flags, .. } = *row;
                Played {
                    location: RowLocation { stage, step, frame, at, n },
                    task,
                    score,
                    solved: flags & SOLVED != 0,
                    malformed: self.seat_with_most(row, |cell| cell.malformed),
                    truncated: self.seat_with_most(row, |cell| cell.truncated),
                }
            })
            .collect()
    }

    /// Returns the seat of a row with the most of a count; `None` if none has any.
    fn seat_with_most(&self, row: &IndexRow, of: fn(&Cell) -> u16) -> Option<String> {
        let cells = self.cells_of(row).iter().filter(|cell| of(cell) > 0);
        let seat = cells.max_by_key(|cell| (of(cell), std::cmp::Reverse(cell.seat)))?.seat;
        Some(self.seats.names[usize::from(seat)].clone())
    }

    /// Returns the share of solved episodes of each task of a stage, by task.
    pub(crate) fn solved_by_task(&self, stage: &str) -> Vec<(&str, f64)> {
        let mut counts: BTreeMap<u32, Attempts> = BTreeMap::new();
        self.scored_rows(stage, [0, u32::MAX])
            .for_each(|row| counts.entry(row.task).or_default().add_row(row));
        let shares = counts.into_iter().map(|(task, of)| {
            (self.tasks.names[task as usize].as_str(), of.solved as f64 / of.episodes as f64)
        });
        shares.collect()
    }

    /// Returns the mean score of each step of a stage, ascending.
    pub(crate) fn mean_scores(&self, stage: &str) -> Vec<(u32, f64)> {
        let mut sums: BTreeMap<u32, Attempts> = BTreeMap::new();
        self.scored_rows(stage, [0, u32::MAX])
            .for_each(|row| sums.entry(row.step).or_default().add_row(row));
        sums.into_iter().map(|(step, sums)| (step, sums.mean_score())).collect()
    }

    /// Returns the task and the score of each scored episode of a step of a stage.
    pub(crate) fn task_scores(&self, stage: &str, step: u32) -> Vec<(u32, f64)> {
        self.scored_rows(stage, [step; 2]).map(|row| (row.task, row.score)).collect()
    }

    /// Returns the source of a task.
    pub(crate) fn task_source(&self, task: u32) -> &str {
        let task = task as usize;
        self.tasks.names[task].get(..self.sources[task]).unwrap_or_default()
    }

    /// Returns the tasks of a step of a stage, those first whose scores fell most.
    pub(crate) fn task_sums(&self, stage: &str, step: u32) -> Vec<TaskSums> {
        let mut now: BTreeMap<u32, Attempts> = BTreeMap::new();
        self.scored_rows(stage, [step; 2])
            .for_each(|row| now.entry(row.task).or_default().add_row(row));
        let mut before: BTreeMap<u32, Attempts> = BTreeMap::new();
        for row in self.scored_rows(stage, [0, step.saturating_sub(1)]) {
            if now.contains_key(&row.task) {
                before.entry(row.task).or_default().add_row(row);
            }
        }
        let mut tasks: Vec<TaskSums> = now
            .into_iter()
            .map(|(task, now): (u32, Attempts)| TaskSums {
                task: self.tasks.names[task as usize].clone(),
                now,
                before: before.get(&task).copied().unwrap_or_default(),
            })
            .collect();
        sort_by(&mut tasks, |a, b| {
            let order = a.change().total_cmp(&b.change());
            order.then(a.now.mean_score().total_cmp(&b.now.mean_score()))
        });
        tasks
    }
}

impl TaskSums {
    /// Returns the change of the mean score; 0 for a task that earlier steps did not have.
    fn change(&self) -> f64 {
        if self.before.episodes == 0 {
            return 0.0;
        }
        self.now.mean_score() - self.before.mean_score()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maverl::run_dir::testing::episode;
    use maverl::run_dir::{EpisodeRow, TRAIN};
    use maverl::trajectory::{RewardOf, RewardPart};

    #[test]
    fn sums_are_by_outcome_and_tasks_are_compared_with_earlier_steps() {
        let mut index = RowIndex::default();
        // Task a is solved in step 1 and not in step 2; b is new in step 2.
        for (step, n, task, solved) in
            [(1, 0, "a", true), (1, 1, "a", true), (2, 0, "a", false), (2, 1, "b", true)]
        {
            let mut one = episode(task, n, solved, 2);
            if !solved {
                one.turns[1].error = Some("no block".into());
                let (name, of) = ("invalid_reply".into(), RewardOf::Turn(1));
                one.rewards.push(RewardPart { name, value: -0.5, of });
            }
            index.add_made(&EpisodeRow::new(TRAIN, step, u64::from(n), [0, 0], &one));
        }
        let team = index.team_sums(TRAIN, [2, 2]);
        assert_eq!((team.episodes, team.solved), (2, 1));
        let seat = &team.seats["t/a"];
        assert_eq!((seat.unsolved.failed, seat.unsolved.malformed, seat.solved.failed), (1, 1, 0));
        assert_eq!((seat.unsolved.parts, seat.solved.parts), (-0.5, 0.0));
        assert_eq!(index.team_sums(TRAIN, [1, 2]).episodes, 4);
        assert!(index.team_sums("before", [0, 9]).seats.is_empty());
        let tasks = index.task_sums(TRAIN, 2);
        let names: Vec<&str> = tasks.iter().map(|sums| sums.task.as_str()).collect();
        assert_eq!(names, ["facts/a", "facts/b"], "the largest fall first");
        assert_eq!((tasks[0].before.episodes, tasks[0].before.solved), (2, 2));
        assert_eq!((tasks[0].now.solved, tasks[1].before.episodes), (0, 0));
        assert_eq!(index.mean_scores(TRAIN), [(1, 1.0), (2, 0.5)]);
        assert_eq!(index.task_scores(TRAIN, 2), [(0, 0.0), (1, 1.0)]);
        let played = index.played_episodes(TRAIN, [2, 2]);
        let found: Vec<_> = played
            .iter()
            .map(|one| (one.location.n, one.solved, one.malformed.as_deref()))
            .collect();
        assert_eq!(found, [(0, false, Some("t/a")), (1, true, None)]);
        assert_eq!((played[0].truncated.as_deref(), played[0].score), (None, 0.0));
        assert_eq!(index.task_source(played[0].task), "facts");
    }
}

//! Rows of `episodes.jsonl` in memory: the numbers by which episodes are found. Texts stay in the file.

pub(crate) mod counts;
pub(crate) mod location;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use serde_json::Value;

use super::selection::{Flag, RowSelection, SortKey};
use maverl::run_dir::{EpisodeRow, TRAIN};

/// Bits of `Row::flags`.
const SOLVED: u8 = 1;
const SCORED: u8 = 2;
const MALFORMED: u8 = 4;
const TRUNCATED: u8 = 8;
/// Set if the text of the row is in memory, because the run has no file of rows.
const MADE: u8 = 16;

/// Maximum size of the rows of a run in bytes. Over it, those of the oldest training steps are forgotten.
const MOST: usize = 512 << 20;

/// All rows of a run.
#[derive(Debug, Default)]
pub(crate) struct RowIndex {
    rows: Vec<IndexRow>,
    /// Number of rows of training that were forgotten.
    forgotten: usize,
    cells: Vec<Cell>,
    stages: Names,
    seats: Names,
    tasks: Names,
    /// Length of the source in the name of each task.
    sources: Vec<usize>,
    /// Texts of rows that were made from files of episodes.
    made: Vec<u8>,
}

/// A row, 56 bytes.
#[derive(Debug, Clone, Copy)]
struct IndexRow {
    offset: u64,
    /// Offset of the frame of the episode in its file.
    frame: u64,
    score: f64,
    step: u32,
    n: u32,
    task: u32,
    tokens: u32,
    first_cell: u32,
    index: u32,
    /// Offset of the episode in its frame; files have at most 4 GiB of text.
    at: u32,
    stage: u16,
    cells: u8,
    flags: u8,
}

impl IndexRow {
    fn has_flag(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Counts of a seat in an episode, 20 bytes.
#[derive(Debug, Clone, Copy)]
struct Cell {
    seat: u16,
    turns: u16,
    malformed: u16,
    truncated: u16,
    tokens: u32,
    reward: f32,
}

/// Strings by number.
#[derive(Debug, Default)]
struct Names {
    numbers: BTreeMap<String, u32>,
    names: Vec<String>,
}

fn narrow_number(n: u32) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX)
}

impl Names {
    fn number_of(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let next = self.names.len() as u32;
        self.numbers.insert(name.to_owned(), next);
        self.names.push(name.to_owned());
        next
    }

    fn find_number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }
}

impl RowIndex {
    /// Adds the line of a row at an offset of the file. A line that is not a row is skipped.
    pub(crate) fn add_line(&mut self, offset: u64, line: &[u8]) {
        if let Ok(row) = serde_json::from_slice::<EpisodeRow>(line) {
            self.make_room();
            self.push_row(offset, &row, 0);
        }
    }

    /// Adds a row that is in no file.
    pub(crate) fn add_made(&mut self, row: &EpisodeRow) {
        self.make_room();
        let offset = self.made.len() as u64;
        if serde_json::to_writer(&mut self.made, row).is_ok() {
            self.made.push(b'\n');
            self.push_row(offset, row, MADE);
        }
    }

    fn push_row(&mut self, offset: u64, row: &EpisodeRow, flags: u8) {
        let first_cell = self.cells.len() as u32;
        let (mut malformed, mut truncated) = (false, false);
        for (seat, counts) in row.seats.iter().take(usize::from(u8::MAX)) {
            malformed |= counts.1 > 0;
            truncated |= counts.2 > 0;
            self.cells.push(Cell {
                seat: narrow_number(self.seats.number_of(&seat.to_string())),
                turns: narrow_number(counts.0),
                malformed: narrow_number(counts.1),
                truncated: narrow_number(counts.2),
                tokens: u32::try_from(counts.3).unwrap_or(u32::MAX),
                reward: counts.4 as f32,
            });
        }
        let task = self.tasks.number_of(&format!("{}/{}", row.source, row.task));
        self.sources.resize(self.tasks.names.len(), row.source.len());
        self.rows.push(IndexRow {
            offset,
            frame: row.at[0],
            score: row.score.unwrap_or(f64::NAN),
            step: u32::try_from(row.step).unwrap_or(u32::MAX),
            n: u32::try_from(row.n).unwrap_or(u32::MAX),
            task,
            tokens: u32::try_from(row.tokens).unwrap_or(u32::MAX),
            first_cell,
            index: row.index,
            at: u32::try_from(row.at[1]).unwrap_or(u32::MAX),
            stage: narrow_number(self.stages.number_of(&row.stage)),
            cells: (self.cells.len() as u32 - first_cell) as u8,
            flags: flags
                | (u8::from(row.solved == Some(true)) * SOLVED)
                | (u8::from(row.score.is_some()) * SCORED)
                | (u8::from(malformed) * MALFORMED)
                | (u8::from(truncated) * TRUNCATED),
        });
    }

    /// Returns the size of the rows in bytes.
    fn size_in_bytes(&self) -> usize {
        size_of_val(&*self.rows) + size_of_val(&*self.cells) + self.made.len()
    }

    fn make_room(&mut self) {
        if self.size_in_bytes() > MOST {
            self.shrink_to(MOST);
        }
    }

    /// Forgets the rows of the oldest training steps until the others have three quarters of a size.
    fn shrink_to(&mut self, most: usize) {
        let train = self.stages.find_number(TRAIN);
        let steps = self.stage_steps(TRAIN);
        let each = self.size_in_bytes() / self.rows.len().max(1);
        let mut over = self.size_in_bytes().saturating_sub(most / 4 * 3) / each.max(1);
        let mut until = 0;
        for step in steps {
            if over == 0 {
                break;
            }
            until = step + 1;
            let its = (self.rows.iter())
                .filter(|row| Some(u32::from(row.stage)) == train && row.step == step);
            over = over.saturating_sub(its.count());
        }
        let (rows, cells) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.cells));
        let made = std::mem::take(&mut self.made);
        for mut row in rows {
            if Some(u32::from(row.stage)) == train && row.step < until {
                self.forgotten += 1;
                continue;
            }
            let its = &cells[row.first_cell as usize..][..usize::from(row.cells)];
            row.first_cell = self.cells.len() as u32;
            self.cells.extend_from_slice(its);
            if row.has_flag(MADE) {
                let rest = &made[row.offset as usize..];
                let end =
                    rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
                row.offset = self.made.len() as u64;
                self.made.extend_from_slice(&rest[..end]);
            }
            self.rows.push(row);
        }
    }

    /// Returns the number of rows of training that were forgotten.
    pub(crate) fn forgotten_rows(&self) -> usize {
        self.forgotten
    }

    /// Forgets the rows of the file, which was cut back. Rows that were made stay.
    pub(crate) fn clear_read(&mut self) {
        self.forgotten = 0;
        let cells = std::mem::take(&mut self.cells);
        self.rows.retain_mut(|row| {
            let made = row.has_flag(MADE);
            if made {
                let its = &cells[row.first_cell as usize..][..usize::from(row.cells)];
                row.first_cell = self.cells.len() as u32;
                self.cells.extend_from_slice(its);
            }
            made
        });
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the stages and seats in the order of their first row.
    pub(crate) fn stages_and_seats(&self) -> (&[String], &[String]) {
        (&self.stages.names, &self.seats.names)
    }

    /// Returns the steps of a stage that have rows, ascending.
    pub(crate) fn stage_steps(&self, stage: &str) -> Vec<u32> {
        let Some(stage) = self.stages.find_number(stage) else { return Vec::new() };
        let its = self.rows.iter().filter(|row| u32::from(row.stage) == stage);
        let mut steps: Vec<u32> = its.map(|row| row.step).collect();
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    /// Returns the number of the task and the score of a row; NaN if the episode is unscored.
    pub(crate) fn task_and_score(&self, at: usize) -> (u32, f64) {
        (self.rows[at].task, self.rows[at].score)
    }

    /// Returns the first step of a stage that has rows.
    pub(crate) fn first_step(&self, stage: &str) -> Option<u64> {
        let stage = self.stages.find_number(stage)?;
        let its = self.rows.iter().filter(|row| u32::from(row.stage) == stage);
        its.map(|row| u64::from(row.step)).min()
    }

    /// Returns the indices of the selected rows in their order, and the number of all selected ones.
    pub(crate) fn select_rows(&self, selection: &RowSelection) -> (Vec<usize>, usize) {
        let chosen = [(&self.stages, &selection.stage), (&self.seats, &selection.seat)];
        let [stage, seat] = chosen.map(|(names, name)| {
            name.as_ref().map(|name| names.find_number(name).unwrap_or(u32::MAX))
        });
        let tasks: Option<Vec<bool>> = selection
            .task
            .as_ref()
            .map(|task| self.tasks.names.iter().map(|name| name.contains(task.as_str())).collect());
        let mut found: Vec<usize> = (0..self.rows.len())
            .filter(|&at| {
                let row = &self.rows[at];
                stage.is_none_or(|stage| u32::from(row.stage) == stage)
                    && tasks.as_ref().is_none_or(|tasks| tasks[row.task as usize])
                    && self.fits_selection(row, seat, selection)
            })
            .collect();
        let (key, descending) = selection.sort;
        found.sort_by(|a, b| {
            let order = self.compare_rows(key, seat, *a, *b);
            (if descending { order.reverse() } else { order }).then(a.cmp(b))
        });
        let total = found.len();
        let page = found.into_iter().skip(selection.offset).take(selection.limit);
        (page.collect(), total)
    }

    fn fits_selection(&self, row: &IndexRow, seat: Option<u32>, selection: &RowSelection) -> bool {
        let cell = seat.map(|seat| self.seat_cell(row, seat));
        let ((low, high), (first, last)) = (selection.score, selection.steps);
        let flag = match selection.flag {
            None => true,
            Some(Flag::Unscored) => !row.has_flag(SCORED),
            Some(Flag::Malformed) => match cell {
                Some(cell) => cell.is_some_and(|cell| cell.malformed > 0),
                None => row.has_flag(MALFORMED),
            },
            Some(Flag::Truncated) => match cell {
                Some(cell) => cell.is_some_and(|cell| cell.truncated > 0),
                None => row.has_flag(TRUNCATED),
            },
        };
        flag && first.is_none_or(|first| row.step >= first)
            && last.is_none_or(|last| row.step <= last)
            && cell.is_none_or(|cell| cell.is_some())
            && (selection.solved)
                .is_none_or(|solved| row.has_flag(SCORED) && row.has_flag(SOLVED) == solved)
            && low.is_none_or(|low| row.score >= low)
            && high.is_none_or(|high| row.score <= high)
    }

    fn seat_cell(&self, row: &IndexRow, seat: u32) -> Option<&Cell> {
        self.cells_of(row).iter().find(|cell| u32::from(cell.seat) == seat)
    }

    fn cells_of(&self, row: &IndexRow) -> &[Cell] {
        &self.cells[row.first_cell as usize..][..usize::from(row.cells)]
    }

    /// Compares two rows. Missing scores are last.
    fn compare_rows(&self, key: SortKey, seat: Option<u32>, a: usize, b: usize) -> Ordering {
        let (a, b) = (&self.rows[a], &self.rows[b]);
        let cells = |of: fn(&Cell) -> f64| {
            self.sum_cells(a, seat, of).total_cmp(&self.sum_cells(b, seat, of))
        };
        match key {
            SortKey::Step => a.step.cmp(&b.step),
            SortKey::Score => a.score.total_cmp(&b.score),
            SortKey::Turns => cells(|cell| f64::from(cell.turns)),
            SortKey::Tokens if seat.is_some() => cells(|cell| f64::from(cell.tokens)),
            SortKey::Tokens => a.tokens.cmp(&b.tokens),
            SortKey::Reward => self.mean_reward(a, seat).total_cmp(&self.mean_reward(b, seat)),
        }
    }

    /// Returns the sum over the cells of a row, of one seat or of all.
    fn sum_cells(&self, row: &IndexRow, seat: Option<u32>, of: fn(&Cell) -> f64) -> f64 {
        let cells = self.cells_of(row).iter();
        cells.filter(|cell| seat.is_none_or(|seat| u32::from(cell.seat) == seat)).map(of).sum()
    }

    /// Returns the mean reward of the turns of a row, of one seat or of all.
    fn mean_reward(&self, row: &IndexRow, seat: Option<u32>) -> f64 {
        let turns = self.sum_cells(row, seat, |cell| f64::from(cell.turns));
        self.sum_cells(row, seat, |cell| f64::from(cell.reward)) / turns.max(1.0)
    }

    /// Returns the index of the row of an episode.
    pub(crate) fn find_row(&self, stage: &str, step: u64, n: u64) -> Option<usize> {
        let stage = self.stages.find_number(stage)?;
        // The newest row: rows that were made for a step follow those of a file.
        self.rows.iter().rposition(|row| {
            (u64::from(row.n), u64::from(row.step), u32::from(row.stage)) == (n, step, stage)
        })
    }

    /// Reads rows by their indices.
    pub(crate) fn read_rows(&self, file: &Path, rows: &[usize]) -> io::Result<Vec<Value>> {
        let mut reader: Option<BufReader<File>> = None;
        let (mut line, mut values) = (Vec::new(), Vec::new());
        for &at in rows {
            let IndexRow { offset, flags, .. } = self.rows[at];
            line.clear();
            if flags & MADE != 0 {
                let text = &self.made[offset as usize..];
                line.extend(text.iter().take_while(|byte| **byte != b'\n'));
            } else {
                let reader = match &mut reader {
                    Some(reader) => reader,
                    none => none.insert(BufReader::new(File::open(file)?)),
                };
                reader.seek(SeekFrom::Start(offset))?;
                reader.read_until(b'\n', &mut line)?;
            }
            values.push(serde_json::from_slice(&line)?);
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::pages::query::QueryParameters;
    use crate::pages::selection::read_selection;
    use crate::report::problem::ReportProblem;
    use maverl::run_dir::testing::episode;

    fn selection(query: &str) -> Result<RowSelection, ReportProblem> {
        read_selection(&QueryParameters::new(query)?)
    }

    fn index() -> RowIndex {
        let mut index = RowIndex::default();
        for step in 1..=3 {
            for n in 0..4_u32 {
                let mut one = episode(&format!("a-{}", n / 2), n % 2, n == 3, n + 1);
                if n == 0 {
                    one.turns[0].error = Some("no block".into());
                }
                let row = EpisodeRow::new(TRAIN, step, u64::from(n), [0, 0], &one);
                index.add_made(&row);
            }
        }
        index
    }

    #[test]
    fn rows_are_found_by_every_filter_and_sorted_by_every_key() {
        let index = index();
        let found = |query: &str| index.select_rows(&selection(query).unwrap());
        assert_eq!(found("").1, 12);
        assert_eq!(found("step=2").0, [4, 5, 6, 7]);
        assert_eq!(found("step=2..&limit=3&offset=1"), (vec![5, 6, 7], 8));
        assert_eq!(found("solved=1").0, [3, 7, 11]);
        assert_eq!(found("flag=malformed").0, [0, 4, 8]);
        assert_eq!(found("flag=malformed&seat=t/a").1, 3);
        assert_eq!(found("flag=unscored").1, 0);
        assert_eq!(found("seat=t/b").1, 0);
        assert_eq!(found("stage=before").1, 0);
        assert_eq!(found("task=a-1&step=1").0, [2, 3]);
        assert_eq!(found("score=0.5..").0, [3, 7, 11]);
        assert_eq!(found("sort=-turns&limit=4").0, [3, 7, 11, 2]);
        assert_eq!(found("sort=-step&limit=2").0, [8, 9]);
        assert_eq!(found("sort=score&limit=1").0, [0]);
        for wrong in ["sort=x", "flag=x", "solved=2", "step=a..", "limit=-1", "score=.."] {
            let refused = selection(wrong);
            assert!(wrong == "score=.." || refused.is_err(), "{wrong}");
        }
    }

    #[test]
    fn over_its_size_an_index_forgets_the_oldest_steps() {
        let mut index = index();
        let (bytes, other) = (index.size_in_bytes(), episode("b-0", 0, true, 1));
        index.add_made(&EpisodeRow::new("before", 0, 0, [0, 0], &other));
        index.shrink_to(bytes);
        assert_eq!((index.forgotten_rows(), index.len()), (4, 9), "one step is a third");
        assert_eq!(index.stage_steps(TRAIN), [2, 3]);
        assert!(index.find_row("before", 0, 0).is_some());
        let at = index.find_row(TRAIN, 3, 3).unwrap();
        let row = index.read_rows(Path::new("none"), &[at]).unwrap().remove(0);
        assert_eq!((row["step"].as_u64(), row["seats"]["t/a"][0].as_u64()), (Some(3), Some(4)));
        let sorted = index.select_rows(&selection("stage=train&sort=-turns&limit=1").unwrap()).0;
        assert_eq!(index.read_rows(Path::new("none"), &sorted).unwrap()[0]["n"], 3);
    }

    #[test]
    fn rows_that_are_cut_back_leave_nothing_in_memory() {
        let mut index = index();
        let before = index.size_in_bytes();
        for _ in 0..3 {
            let one = EpisodeRow::new(TRAIN, 4, 0, [0, 0], &episode("c", 0, true, 2));
            index.add_line(0, &serde_json::to_vec(&one).unwrap());
            assert!(index.size_in_bytes() > before);
            index.clear_read();
            assert_eq!((index.size_in_bytes(), index.len()), (before, 12));
        }
        let sorted = index.select_rows(&selection("sort=-turns&limit=1").unwrap()).0;
        assert_eq!(index.read_rows(Path::new("none"), &sorted).unwrap()[0]["n"], 3);
    }

    #[test]
    fn rows_read_back_as_they_were_written() {
        let index = index();
        let rows = index.read_rows(Path::new("none"), &[7, 0]).unwrap();
        let row: EpisodeRow = serde_json::from_value(rows[0].clone()).unwrap();
        assert_eq!((row.step, row.n, row.task.as_str()), (2, 3, "a-1"));
        assert_eq!(index.find_row(TRAIN, 2, 3), Some(7));
        assert_eq!(index.find_row(TRAIN, 2, 4), None);
        assert_eq!(index.of_task(7).len(), 6);
        assert_eq!(index.solved_by_task(TRAIN), [("facts/a-0", 0.0), ("facts/a-1", 0.5)]);
        assert!(size_of::<IndexRow>() <= 56 && size_of::<Cell>() <= 20);
    }
}

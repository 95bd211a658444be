//! Search for words in the texts of episodes, over the frames that a selection leaves, on all cores.
//!
//! Each frame is decoded once. A pattern on the bytes of a line decides whether the line is parsed. Found episodes are
//! sent in the order of the selection, as soon as all before them were read.
//!
//! There is no index of texts: it would have to be written, and the viewer writes nothing into a run.

mod words;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use maverl::run_dir::scan_texts;
use serde_json::Value;

use self::words::{WordHit, Words};
use crate::report::problem::ReportProblem;
use crate::report::rows::index::location::RowLocation;
use crate::report::rows::run::ReportedRun;
use crate::report::rows::selection::RowSelection;

/// Maximum number of searches at once.
const SEARCHES: usize = 4;
/// Maximum number of found episodes of a search.
const MOST: usize = 500;
/// Number of frames whose results wait to be sent.
const WAITING: usize = 64;
/// Time after which an empty part asks whether the client is still there.
const PATIENCE: Duration = Duration::from_millis(200);

static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Episodes of one frame.
struct SearchUnit {
    file: PathBuf,
    frame: u64,
    /// Offset of each episode in the frame, and its position in the order of the selection; ascending.
    episodes: Vec<(u64, usize)>,
}

/// Work of the threads of a search.
struct SearchWork {
    words: Words,
    /// Frames in the order of their first episode in the selection.
    units: Vec<SearchUnit>,
    /// Index of the first unit that no thread has begun.
    next: AtomicUsize,
    /// Set when the client is gone.
    stopped: AtomicBool,
}

/// Result of a unit: the position of each found episode in the selection; `None` if its frame cannot be read.
type FoundEpisodes = (usize, Option<Vec<(usize, WordHit)>>);

/// A running search: lines of JSON, one part at a time. The last line says how many episodes were read. An empty part only
/// asks if anyone still waits.
pub(crate) struct RunningSearch {
    run: Arc<ReportedRun>,
    work: Arc<SearchWork>,
    /// Row, and unit of its frame, of each selected episode.
    rows: Vec<(usize, RowLocation, usize)>,
    /// Units that were read.
    done: Vec<bool>,
    results: Option<Receiver<FoundEpisodes>>,
    /// Found episodes that wait for those before them, the first [`MOST`].
    pending: BTreeMap<usize, WordHit>,
    /// Position in the selection before which everything was sent.
    sent: usize,
    scanned: usize,
    unreadable: usize,
    found: usize,
    ended: bool,
}

impl Drop for RunningSearch {
    fn drop(&mut self) {
        self.work.stopped.store(true, Ordering::Relaxed);
        RUNNING.fetch_sub(1, Ordering::SeqCst);
    }
}

impl SearchUnit {
    /// Returns the first occurrence of the words in each episode that has them; `None` if the frame cannot be read, or the
    /// search was stopped.
    fn search_rows(&self, words: &Words, stopped: &AtomicBool) -> Option<Vec<(usize, WordHit)>> {
        let starts: Vec<u64> = self.episodes.iter().map(|(at, _)| *at).collect();
        let mut hits: Vec<(usize, WordHit)> = Vec::new();
        let filter = |line: &[u8]| !stopped.load(Ordering::Relaxed) && words.may_be_in(line);
        scan_texts(&self.file, self.frame, &starts, filter, |i, texts| {
            let Some(hit) = words.find_first(&texts) else { return };
            match hits.last_mut().filter(|(last, _)| *last == i) {
                Some((_, known)) if hit.is_before(known) => *known = hit,
                Some(_) => {}
                None => hits.push((i, hit)),
            }
        })
        .ok()?;
        Some(hits.into_iter().map(|(i, hit)| (self.episodes[i].1, hit)).collect())
    }
}

impl SearchWork {
    /// Reads units until none is left or the client is gone.
    fn run_units(&self, results: &SyncSender<FoundEpisodes>) {
        loop {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(unit) = self.units.get(at) else { return };
            let found = unit.search_rows(&self.words, &self.stopped);
            if self.stopped.load(Ordering::Relaxed) || results.send((at, found)).is_err() {
                return;
            }
        }
    }
}

impl RunningSearch {
    /// Begins a search for words in the selected episodes.
    pub(crate) fn begin(
        run: &Arc<ReportedRun>,
        words: &str,
        selection: &RowSelection,
    ) -> Result<Self, ReportProblem> {
        if RUNNING.fetch_add(1, Ordering::SeqCst) >= SEARCHES {
            RUNNING.fetch_sub(1, Ordering::SeqCst);
            return Err(ReportProblem::busy("four searches are running; wait for one"));
        }
        Ok(Self::new(run, Words::new(words), selection))
    }

    fn new(run: &Arc<ReportedRun>, words: Words, selection: &RowSelection) -> Self {
        let content = run.lock_content();
        let (selected, _) = content.index.select_rows(selection);
        let mut units: Vec<SearchUnit> = Vec::new();
        let mut known: BTreeMap<(u16, u32, u64), usize> = BTreeMap::new();
        let mut rows = Vec::with_capacity(selected.len());
        for at in selected {
            let Some(location) = content.index.location(at) else { continue };
            let unit = *known
                .entry((location.stage, location.step, location.frame))
                .or_insert_with(|| {
                    let stage = content.index.stage_name(location.stage);
                    let file = run.files.episodes_file(stage, u64::from(location.step));
                    let (file, frame) = (file.unwrap_or_default(), location.frame);
                    units.push(SearchUnit { file, frame, episodes: Vec::new() });
                    units.len() - 1
                });
            units[unit].episodes.push((u64::from(location.at), rows.len()));
            rows.push((at, location, unit));
        }
        drop(content);
        for unit in &mut units {
            unit.episodes.sort_unstable();
            unit.episodes.dedup_by_key(|(at, _)| *at);
        }
        let done = vec![false; units.len()];
        let stopped = AtomicBool::new(false);
        Self {
            run: Arc::clone(run),
            work: Arc::new(SearchWork { words, units, next: AtomicUsize::new(0), stopped }),
            rows,
            done,
            results: None,
            pending: BTreeMap::new(),
            sent: 0,
            scanned: 0,
            unreadable: 0,
            found: 0,
            ended: false,
        }
    }

    /// Starts a thread for each core.
    fn start_threads(&self) -> Receiver<FoundEpisodes> {
        let (sender, receiver) = sync_channel(WAITING);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..cores.min(self.work.units.len()) {
            let (work, sender) = (Arc::clone(&self.work), sender.clone());
            let named = std::thread::Builder::new().name("search".to_owned());
            // Without a thread, others do its work; without any, the end says how many episodes were not read.
            let _ = named.spawn(move || work.run_units(&sender));
        }
        receiver
    }

    /// Takes in the result of a unit.
    fn take_found(&mut self, (unit, found): FoundEpisodes) {
        let episodes = self.work.units[unit].episodes.len();
        self.done[unit] = true;
        self.scanned += episodes;
        match found {
            Some(found) => self.pending.extend(found),
            None => self.unreadable += episodes,
        }
        while self.pending.len() > MOST - self.found {
            self.pending.pop_last();
        }
    }

    /// Writes the found episodes before which every episode was read.
    fn write_ready(&mut self, text: &mut String) {
        while self.rows.get(self.sent).is_some_and(|(.., unit)| self.done[*unit]) {
            if let Some(hit) = self.pending.remove(&self.sent)
                && let Some(row) = self.read_row(self.sent)
            {
                self.found += 1;
                text.push_str(&format!("{}\n", hit.json(&row)));
            }
            self.sent += 1;
        }
    }

    /// Reads a selected row; `None` if the run was cut back since.
    fn read_row(&self, selected: usize) -> Option<Value> {
        let (at, location, _) = self.rows[selected];
        let content = self.run.lock_content();
        if content.index.location(at) != Some(location) {
            return None;
        }
        content.index.read_rows(content.rows_file(), &[at]).ok()?.into_iter().next()
    }
}

impl Iterator for RunningSearch {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if self.ended {
            return None;
        }
        let results = self.results.take().unwrap_or_else(|| self.start_threads());
        let mut gone = false;
        match results.recv_timeout(PATIENCE) {
            Ok(found) => {
                self.take_found(found);
                results.try_iter().take(WAITING).for_each(|found| self.take_found(found));
            }
            Err(RecvTimeoutError::Timeout) => {
                self.results = Some(results);
                return Some(Vec::new());
            }
            Err(RecvTimeoutError::Disconnected) => gone = true,
        }
        let mut text = String::new();
        self.write_ready(&mut text);
        self.results = Some(results);
        self.ended = gone || self.sent == self.rows.len() || self.found >= MOST;
        let unread = if gone { self.rows.len() - self.scanned } else { 0 };
        let progress = object!({
            "scanned": self.scanned, "of": self.rows.len(), "end": self.ended,
            "unreadable": self.unreadable + unread,
        });
        text.push_str(&format!("{progress}\n"));
        Some(text.into_bytes())
    }
}

#[cfg(test)]
mod tests;

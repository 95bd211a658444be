//! Progress of a running process in a file of the run directory, for readers in other processes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::run_dir::PROGRESS;
use crate::run_dir::disk::replace_file;
use crate::train::progress::{Progress, StepLine};
use crate::trajectory::Episode;

/// Interval between two writes.
const INTERVAL: Duration = Duration::from_secs(1);

/// Content of `progress.json`. A process is alive if `beat` changes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Beat {
    /// Number of writes.
    pub beat: u64,
    /// Number of completed steps.
    pub step: u64,
    /// Number of all steps.
    pub steps: u64,
    /// Work in progress, such as `step 12` or `evaluating on `test``.
    pub phase: String,
    /// Number of ended units of the phase.
    pub done: u64,
    /// Number of all units of the phase; 0 if it has none.
    pub of: u64,
    /// Unit: `episodes`, or empty.
    pub unit: String,
    /// Start of the phase in seconds since 1970.
    pub since: f64,
}

/// A receiver of progress that passes everything on, and writes `progress.json` every second while the run is open.
pub(in crate::train) struct Heartbeat {
    inner: Arc<dyn Progress>,
    shared: Arc<SharedState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct SharedState {
    state: Mutex<State>,
    stop: Condvar,
}

#[derive(Default)]
struct State {
    beat: Beat,
    stopped: bool,
}

impl Heartbeat {
    /// Wraps a receiver.
    pub(in crate::train) fn new(inner: Arc<dyn Progress>) -> Self {
        Self { inner, shared: Arc::default(), thread: Mutex::default() }
    }

    fn phase(&self, phase: &str, of: u64, unit: &str) {
        let mut state = lock(&self.shared.state);
        let since = SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |since| since.as_secs_f64());
        let Beat { beat, step, steps, .. } = state.beat;
        let (phase, unit) = (phase.to_owned(), unit.to_owned());
        state.beat = Beat { beat, step, steps, phase, done: 0, of, unit, since };
    }

    /// Ends the thread. The file stays with its last content, which says where a failed run stopped.
    fn stop(&self) {
        lock(&self.shared.state).stopped = true;
        self.shared.stop.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            // The thread ends within one write; its panic would only mean that the file is old.
            let _ = thread.join();
        }
    }
}

impl SharedState {
    /// Writes the file every second until the end.
    fn run(&self, path: &Path) {
        let mut state = lock(&self.state);
        while !state.stopped {
            state.beat.beat += 1;
            let beat = state.beat.clone();
            drop(state);
            // Without the file, readers take the run for stopped. Training does not depend on it.
            let _ = write(path, &beat);
            state = lock(&self.state);
            if !state.stopped {
                let waited = self.stop.wait_timeout(state, INTERVAL);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

/// Replaces the file. It is not synced: after a crash, nobody needs it.
fn write(path: &Path, beat: &Beat) -> std::io::Result<()> {
    replace_file(path, |file| Ok(serde_json::to_writer(file, beat)?))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Progress for Heartbeat {
    fn opened(&self, dir: &Path) {
        self.inner.opened(dir);
        let (shared, path): (Arc<SharedState>, PathBuf) =
            (Arc::clone(&self.shared), dir.join(PROGRESS));
        let named = std::thread::Builder::new().name("progress".to_owned());
        // Without the thread there is no file.
        *lock(&self.thread) = named.spawn(move || shared.run(&path)).ok();
    }
    fn begin(&self, done: u64, steps: u64) {
        let mut state = lock(&self.shared.state);
        (state.beat.step, state.beat.steps) = (done, steps);
        drop(state);
        self.inner.begin(done, steps);
    }
    fn play(&self, what: &str, episodes: u64) {
        self.phase(what, episodes, "episodes");
        self.inner.play(what, episodes);
    }
    fn played(&self, ended: u64, tokens: u64) {
        lock(&self.shared.state).beat.done = ended;
        self.inner.played(ended, tokens);
    }
    fn on_episode(&self, episode: &Episode) {
        self.inner.on_episode(episode);
    }
    fn work(&self, what: &str) {
        self.phase(what, 0, "");
        self.inner.work(what);
    }
    fn step(&self, line: &StepLine) {
        lock(&self.shared.state).beat.step = line.step;
        self.inner.step(line);
    }
    fn note(&self, text: &str) {
        self.inner.note(text);
    }
    fn warn(&self, text: &str) {
        self.inner.warn(text);
    }
    fn end(&self) {
        self.stop();
        self.inner.end();
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::run_dir::disk::{entries, name, read_json};
    use crate::train::progress::Silent;

    #[test]
    fn the_file_says_what_is_done_and_stays_when_the_run_fails() {
        let dir = tempfile::tempdir().unwrap();
        let heartbeat = Heartbeat::new(Arc::new(Silent));
        heartbeat.begin(3, 10);
        heartbeat.play("step 4", 128);
        heartbeat.played(48, 500);
        heartbeat.opened(dir.path());
        let path = dir.path().join(PROGRESS);
        while !path.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let first: Beat = read_json(&path).unwrap();
        assert_eq!((first.step, first.steps, first.phase.as_str()), (3, 10, "step 4"));
        assert_eq!((first.done, first.of, first.unit.as_str()), (48, 128, "episodes"));
        heartbeat.end();
        drop(heartbeat);
        assert_eq!(
            entries(dir.path()).unwrap().iter().map(|path| name(path)).collect::<Vec<_>>(),
            [PROGRESS]
        );
    }

    #[test]
    fn a_write_that_fails_leaves_no_file_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(PROGRESS);
        // No file can replace a directory that has one.
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("x"), "").unwrap();
        write(&path, &Beat::default()).unwrap_err();
        assert_eq!(entries(dir.path()).unwrap(), [path]);
    }
}

//! Plain lines, for files and pipes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::train::progress::{Progress, StepLine, StepPace, speed, tell, time_left};

/// Interval of the lines for long work.
const QUIET: Duration = Duration::from_secs(30);

/// Display with one line per step, and one every half minute for longer work.
pub(super) struct ProgressLines {
    state: Mutex<State>,
    print: fn(&str),
    quiet: Duration,
}

#[derive(Debug)]
struct State {
    pace: StepPace,
    what: String,
    episodes: u64,
    /// Start of the episodes.
    begun: Instant,
    /// Time of the last printed line.
    printed: Instant,
}

impl Default for ProgressLines {
    fn default() -> Self {
        Self::new(|line| tell(line), QUIET)
    }
}

impl ProgressLines {
    fn new(print: fn(&str), quiet: Duration) -> Self {
        let now = Instant::now();
        let (pace, what) = (StepPace::default(), String::new());
        let state = Mutex::new(State { pace, what, episodes: 0, begun: now, printed: now });
        Self { state, print, quiet }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, line: &str) {
        (self.print)(line);
        self.state().printed = Instant::now();
    }
}

impl Progress for ProgressLines {
    fn begin(&self, done: u64, steps: u64) {
        if done > 0 {
            self.say(&format!("{done} of {steps} steps are done"));
        }
    }

    fn play(&self, what: &str, episodes: u64) {
        let mut state = self.state();
        state.what = what.to_owned();
        state.episodes = episodes;
        state.begun = Instant::now();
    }

    fn played(&self, ended: u64, tokens: u64) {
        let line = {
            let state = self.state();
            if state.printed.elapsed() < self.quiet || ended == state.episodes {
                return;
            }
            let elapsed = state.begun.elapsed();
            let speed = speed(tokens, elapsed);
            let left = time_left(ended, state.episodes, elapsed);
            let left = left.map_or_else(String::new, |left| format!(", {left} left"));
            format!("{}: {ended} of {} episodes, {speed}{left}", state.what, state.episodes)
        };
        self.say(&line);
    }

    fn work(&self, what: &str) {
        if self.state().printed.elapsed() >= self.quiet {
            self.say(what);
        }
    }

    fn step(&self, line: &StepLine) {
        let left = self.state().pace.left(line);
        self.say(&line.text(left));
    }

    fn note(&self, text: &str) {
        self.say(text);
    }

    fn warn(&self, text: &str) {
        self.say(&format!("warning: {text}"));
    }

    fn end(&self) {}
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn what_takes_long_gets_lines_and_what_does_not_gets_none() {
        let print = |line: &str| SAID.lock().unwrap().push(line.to_owned());
        let quick = ProgressLines::new(print, QUIET);
        quick.play("step 1", 8);
        quick.played(3, 10);
        quick.work("step 1: learning");
        assert_eq!(*SAID.lock().unwrap(), [""; 0]);
        let slow = ProgressLines::new(print, Duration::ZERO);
        slow.play("evaluating on `test`", 8);
        slow.played(3, 10);
        slow.played(8, 10);
        slow.work("step 1: learning");
        let said = SAID.lock().unwrap();
        assert!(said[0].starts_with("evaluating on `test`: 3 of 8 episodes, "), "{said:?}");
        assert_eq!(said[1..], ["step 1: learning"]);
    }
}

//! Progress bar on a terminal, below one line for every step.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Pace, Progress, StepLine, speed};

/// Interval at which the bar is redrawn.
const TICK: Duration = Duration::from_millis(200);
/// Template for episodes.
const EPISODES: &str = "{spinner} {prefix}: {pos}/{len} episodes {wide_bar} {msg}";
/// Template for other work.
const WORK: &str = "{spinner} {prefix}, {elapsed}";

/// Display with a permanent line per step, and below it a bar for the episodes of the step or the evaluation.
pub(super) struct Bar {
    state: Mutex<State>,
    target: fn() -> ProgressDrawTarget,
}

struct State {
    bar: Option<ProgressBar>,
    pace: Pace,
    begun: Instant,
    /// Completed and total steps, shown as `3/40`.
    steps: Option<(u64, u64)>,
}

impl Default for Bar {
    fn default() -> Self {
        Self::on(ProgressDrawTarget::stderr)
    }
}

impl Bar {
    fn on(target: fn() -> ProgressDrawTarget) -> Self {
        let state = State { bar: None, pace: Pace::default(), begun: Instant::now(), steps: None };
        Self { state: Mutex::new(state), target }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the current bar.
    fn show(&self, template: &str, what: &str, length: u64) {
        let style = ProgressStyle::with_template(template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let mut state = self.state();
        if let Some(bar) = state.bar.take() {
            bar.finish_and_clear();
        }
        // `step 3` is shown as `step 3/40` if the total is known.
        let prefix = match state.steps {
            Some((step, steps)) => {
                what.replacen(&format!("step {step}"), &format!("step {step}/{steps}"), 1)
            }
            None => what.to_owned(),
        };
        let bar = ProgressBar::with_draw_target(Some(length), (self.target)());
        bar.set_style(style);
        bar.set_prefix(prefix);
        bar.enable_steady_tick(TICK);
        state.bar = Some(bar);
        state.begun = Instant::now();
    }

    /// Prints a permanent line above the bar.
    fn print(&self, line: &str) {
        match &self.state().bar {
            Some(bar) if !bar.is_hidden() => bar.println(line),
            _ => eprintln!("{line}"),
        }
    }
}

impl Progress for Bar {
    fn begin(&self, done: u64, steps: u64) {
        self.state().steps = Some((done + 1, steps));
        if done > 0 {
            self.print(&format!("{done} of {steps} steps are done"));
        }
    }

    fn play(&self, what: &str, episodes: u64) {
        self.show(EPISODES, what, episodes);
    }

    fn played(&self, ended: u64, tokens: u64) {
        let state = self.state();
        if let Some(bar) = &state.bar {
            let episodes = bar.length().unwrap_or(ended);
            bar.set_position(ended);
            bar.set_message(speed(ended, episodes, tokens, state.begun.elapsed()));
        }
    }

    fn work(&self, what: &str) {
        self.show(WORK, what, 0);
    }

    fn step(&self, line: &StepLine) {
        let left = {
            let mut state = self.state();
            state.steps = Some((line.step + 1, line.steps));
            state.pace.left(line)
        };
        self.print(&line.text(left));
    }

    fn note(&self, text: &str) {
        self.print(text);
    }

    fn warn(&self, text: &str) {
        self.print(&format!("warning: {text}"));
    }

    fn end(&self) {
        if let Some(bar) = self.state().bar.take() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io;

    use indicatif::TermLike;

    use super::*;

    /// A terminal of 60 columns that records all output.
    #[derive(Debug)]
    struct Terminal;

    static WRITTEN: Mutex<String> = Mutex::new(String::new());

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            60
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            WRITTEN.lock().unwrap().push_str(&format!("{text}\n"));
            Ok(())
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            WRITTEN.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the output since the last call.
    fn written() -> String {
        std::mem::take(&mut *WRITTEN.lock().unwrap())
    }

    #[test]
    fn steps_leave_lines_and_a_bar_moves_within_them() {
        let bar = Bar::on(|| ProgressDrawTarget::term_like(Box::new(Terminal)));
        bar.begin(0, 40);
        bar.play("step 1", 8);
        std::thread::sleep(2 * TICK);
        let text = written();
        assert!(text.contains("step 1/40: 0/8 episodes") && !text.contains("left"), "{text}");
        bar.played(4, 100);
        std::thread::sleep(2 * TICK);
        let text = written();
        assert!(text.contains("4/8 episodes") && text.contains("tokens/s"), "{text}");
        assert!(text.contains("left"), "{text}");
        bar.work("step 1: learning");
        std::thread::sleep(2 * TICK);
        assert!(written().contains("step 1/40: learning, "));
        let line =
            StepLine { step: 1, steps: 40, score: None, solved: None, tokens: 0, seconds: 1.0 };
        bar.step(&line);
        let text = written();
        assert!(text.contains("step 1/40: 0 tokens/s, 1.0 s, 39 seconds left"), "{text:?}");
        bar.end();
    }
}

//! Progress bar on a terminal, below one line for every step.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use terminal_size::terminal_size_of;

use crate::output::visible;
use crate::table::paragraphs;
use crate::train::progress::commands::own_name;
use crate::train::progress::{Progress, StepLine, StepPace, speed, tell, time_left};

/// Interval at which the bar is redrawn.
const TICK: Duration = Duration::from_millis(200);
/// Template for episodes.
const EPISODES: &str = "{spinner} {prefix}: {pos}/{len} episodes {wide_bar} {msg}";
/// Template for episodes on a terminal of fewer than [`WIDE`] columns: no bar, and a text that is cut at its end.
const NARROW: &str = "{spinner} {prefix}: {pos}/{len} {wide_msg}";
/// Number of columns from which there is room for a bar.
const WIDE: u16 = 80;
/// Template for other work.
const WORK: &str = "{spinner} {prefix}, {elapsed}";

/// Display with a permanent line per step, and below it a bar for the episodes of the step or the evaluation.
pub(super) struct Bar {
    state: Mutex<State>,
    target: fn() -> ProgressDrawTarget,
    columns: fn() -> u16,
}

struct State {
    bar: Option<ProgressBar>,
    pace: StepPace,
    begun: Instant,
    /// Completed and total steps, shown as `3/40`.
    steps: Option<(u64, u64)>,
}

impl Default for Bar {
    fn default() -> Self {
        Self::on_target(ProgressDrawTarget::stderr, terminal_columns)
    }
}

fn terminal_columns() -> u16 {
    terminal_size_of(std::io::stderr()).map_or(WIDE, |(width, _)| width.0)
}

impl Bar {
    fn on_target(target: fn() -> ProgressDrawTarget, columns: fn() -> u16) -> Self {
        let state =
            State { bar: None, pace: StepPace::default(), begun: Instant::now(), steps: None };
        Self { state: Mutex::new(state), target, columns }
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
        bar.set_prefix(visible(&prefix).into_owned());
        bar.enable_steady_tick(TICK);
        state.bar = Some(bar);
        state.begun = Instant::now();
    }

    /// Prints a permanent line above the bar.
    fn print(&self, line: &str) {
        match &self.state().bar {
            Some(bar) if !bar.is_hidden() => bar.println(visible(line)),
            _ => tell(line),
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
        let template = if (self.columns)() < WIDE { NARROW } else { EPISODES };
        self.show(template, what, episodes);
    }

    fn played(&self, ended: u64, tokens: u64) {
        let state = self.state();
        if let Some(bar) = &state.bar {
            let episodes = bar.length().unwrap_or(ended);
            bar.set_position(ended);
            let elapsed = state.begun.elapsed();
            let left = time_left(ended, episodes, elapsed);
            let left = left.map_or_else(String::new, |left| format!("{left:#} left, "));
            bar.set_message(format!("{left}{}", speed(tokens, elapsed)));
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
        let columns = usize::from((self.columns)());
        self.print(&paragraphs(&own_name(text), columns));
    }

    fn warn(&self, text: &str) {
        self.note(&format!("warning: {text}"));
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

    /// A terminal of so many columns that records all output.
    #[derive(Debug)]
    struct Terminal(u16);

    static WRITTEN: Mutex<String> = Mutex::new(String::new());

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            self.0
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
            WRITTEN.lock().unwrap().push('\n');
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

    fn on(columns: u16) -> Bar {
        match columns {
            60 => Bar::on_target(|| ProgressDrawTarget::term_like(Box::new(Terminal(60))), || 60),
            _ => Bar::on_target(|| ProgressDrawTarget::term_like(Box::new(Terminal(80))), || 80),
        }
    }

    /// Plays the longest texts at a width; no line may be wider.
    fn fits(columns: u16) {
        let bar = on(columns);
        bar.begin(0, 4000);
        bar.play("evaluating on `validation`", 4096);
        std::thread::sleep(Duration::from_millis(30));
        bar.played(1000, 40_000);
        std::thread::sleep(2 * TICK);
        bar.end();
        let text = written();
        assert!(text.contains(": 1000/4096 ") && text.contains(" left, "), "{text}");
        let widest = text.lines().map(|line| line.trim_end().chars().count()).max();
        assert!(widest <= Some(columns.into()), "{widest:?} columns at {columns}\n{text}");
    }

    #[test]
    fn steps_leave_lines_and_a_bar_moves_within_them() {
        fits(60);
        fits(80);
        let bar = on(80);
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
        let line = StepLine {
            step: 1,
            steps: 40,
            score: None,
            solved: None,
            loss: None,
            tokens: 0,
            seconds: 1.0,
        };
        bar.step(&line);
        let text = written();
        assert!(text.contains("step 1/40: 1.0 s, 39 seconds left"), "{text:?}");
        bar.end();
        let (bar, words) = (on(60), "no episode of the step could be scored, ".repeat(4));
        bar.begin(0, 40);
        bar.play("step 1", 8);
        bar.warn(&words);
        let text = written();
        let shown: Vec<char> = text[text.find("warning: ").unwrap()..].chars().collect();
        let rows: Vec<String> = shown.chunks(60).map(|row| row.iter().collect()).collect();
        assert!(
            rows[0].ends_with("no episode ") && rows[1].starts_with("  of the step "),
            "{rows:?}"
        );
        bar.end();
    }
}

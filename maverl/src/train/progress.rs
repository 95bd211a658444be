//! Telling the user how a run is going.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

/// What a step did, for people.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepLine {
    /// Steps done.
    pub step: u64,
    /// Steps there will be.
    pub steps: u64,
    /// Mean score of the step's episodes; `None` if none was scored.
    pub score: Option<f64>,
    /// Share of them that solved their task.
    pub solved: Option<f64>,
    /// Tokens sampled.
    pub tokens: u64,
    /// Seconds it took.
    pub seconds: f64,
}

/// Is told how a run is going.
pub trait Progress: Send + Sync {
    /// Steps are about to be done; `done` of `steps` already are.
    fn begin(&self, done: u64, steps: u64);
    /// A step was done.
    fn step(&self, line: &StepLine);
    /// Something the user may want to know.
    fn note(&self, text: &str);
    /// Something the user should look at.
    fn warn(&self, text: &str);
    /// No more steps.
    fn end(&self);
}

/// On standard error: a bar where that is a terminal, plain lines otherwise.
pub fn stderr() -> Arc<dyn Progress> {
    if std::io::stderr().is_terminal() {
        Arc::new(Bar::default())
    } else {
        Arc::new(Lines::default())
    }
}

/// Says nothing.
#[derive(Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _: u64, _: u64) {}
    fn step(&self, _: &StepLine) {}
    fn note(&self, _: &str) {}
    fn warn(&self, _: &str) {}
    fn end(&self) {}
}

impl StepLine {
    /// Score, solved share and speed.
    fn quantities(&self) -> String {
        let share =
            |name: &str, value: Option<f64>| value.map(|value| format!("{name} {value:.3}"));
        let speed = self.tokens as f64 / self.seconds.max(1e-9);
        let parts = [share("reward", self.score), share("solved", self.solved)];
        let parts = parts.into_iter().flatten().chain([format!("{speed:.0} tokens/s")]);
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// A bar with reward, speed and time left.
#[derive(Debug, Default)]
struct Bar(Mutex<Option<ProgressBar>>);

impl Bar {
    fn with(&self, tell: impl FnOnce(&ProgressBar)) {
        if let Some(bar) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            tell(bar);
        }
    }

    fn print(&self, text: &str) {
        let bar = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*bar {
            Some(bar) => bar.println(text),
            None => eprintln!("{text}"),
        }
    }
}

impl Progress for Bar {
    fn begin(&self, done: u64, steps: u64) {
        let style = "{bar:30} step {pos}/{len}  {msg}  {eta} left";
        let style =
            ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(steps).with_style(style).with_position(done);
        bar.reset_eta();
        bar.enable_steady_tick(Duration::from_secs(1));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar);
    }

    fn step(&self, line: &StepLine) {
        self.with(|bar| {
            bar.set_message(line.quantities());
            bar.set_position(line.step);
        });
    }

    fn note(&self, text: &str) {
        self.print(text);
    }

    fn warn(&self, text: &str) {
        self.print(&format!("warning: {text}"));
    }

    fn end(&self) {
        if let Some(bar) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bar.abandon();
        }
    }
}

/// A line for each step.
#[derive(Debug, Default)]
struct Lines {
    /// Steps seen, and the seconds they took.
    pace: Mutex<(u64, f64)>,
}

impl Lines {
    fn left(&self, line: &StepLine) -> Duration {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.0 += 1;
        pace.1 += line.seconds;
        let steps = line.steps.saturating_sub(line.step) as f64;
        Duration::try_from_secs_f64(steps * pace.1 / pace.0 as f64).unwrap_or_default()
    }
}

impl Progress for Lines {
    fn begin(&self, done: u64, steps: u64) {
        if done > 0 {
            eprintln!("{done} of {steps} steps are done");
        }
    }

    fn step(&self, line: &StepLine) {
        let left = HumanDuration(self.left(line));
        let (step, steps) = (line.step, line.steps);
        eprintln!("step {step}/{steps}: {}, {:.1} s, {left} left", line.quantities(), line.seconds);
    }

    fn note(&self, text: &str) {
        eprintln!("{text}");
    }

    fn warn(&self, text: &str) {
        eprintln!("warning: {text}");
    }

    fn end(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: StepLine =
        StepLine { step: 3, steps: 10, score: Some(0.5), solved: None, tokens: 600, seconds: 2.0 };

    #[test]
    fn a_line_says_what_is_known() {
        assert_eq!(LINE.quantities(), "reward 0.500, 300 tokens/s");
    }

    #[test]
    fn the_time_left_is_that_of_the_steps_seen() {
        let lines = Lines::default();
        assert_eq!(lines.left(&LINE), Duration::from_secs(14));
        let next = StepLine { step: 4, seconds: 4.0, ..LINE };
        assert_eq!(lines.left(&next), Duration::from_secs(18));
    }
}

//! Progress display of a run.

mod bar;
mod heartbeat;
mod lines;

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use indicatif::HumanDuration;

use bar::Bar;
pub use heartbeat::Beat;
pub(super) use heartbeat::Heartbeat;
use lines::Lines;

/// Summary of a step for people.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepLine {
    /// Number of completed steps.
    pub step: u64,
    /// Number of all steps.
    pub steps: u64,
    /// Mean score of the step's episodes, without reward parts and penalties; `None` if none was scored.
    pub score: Option<f64>,
    /// Share of scored episodes that solved their task.
    pub solved: Option<f64>,
    /// Number of sampled tokens.
    pub tokens: u64,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Receiver of the progress of a run.
pub trait Progress: Send + Sync {
    /// Called when the run directory is ready, before anything else.
    fn opened(&self, dir: &Path) {
        let _ = dir;
    }
    /// Called before the first step; `done` of `steps` are complete.
    fn begin(&self, done: u64, steps: u64);
    /// Called before the episodes of a step or an evaluation, which `what` names.
    fn play(&self, what: &str, episodes: u64) {
        let _ = (what, episodes);
    }
    /// Called every half second and when episodes end, with the number of ended episodes and of sampled tokens.
    fn played(&self, ended: u64, tokens: u64) {
        let _ = (ended, tokens);
    }
    /// Called at the start of work without episodes, such as an update.
    fn work(&self, what: &str) {
        let _ = what;
    }
    /// Called after each step.
    fn step(&self, line: &StepLine);
    /// Receives a message for the user.
    fn note(&self, text: &str);
    /// Receives a warning for the user.
    fn warn(&self, text: &str);
    /// Called at the end.
    fn end(&self);
}

/// Returns a display on standard error: one line per step, with a bar below if it is a terminal.
pub fn stderr() -> Arc<dyn Progress> {
    if std::io::stderr().is_terminal() {
        Arc::new(Bar::default())
    } else {
        Arc::new(Lines::default())
    }
}

/// Returns a receiver that prints nothing.
pub fn silent() -> Arc<dyn Progress> {
    Arc::new(Silent)
}

/// Receiver that prints nothing.
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
    /// Formats the step as one line.
    fn text(&self, left: Duration) -> String {
        let share =
            |name: &str, value: Option<f64>| value.map(|value| format!("{name} {value:.3}"));
        let speed = self.tokens as f64 / self.seconds.max(1e-9);
        let left = (self.step < self.steps).then(|| format!("{} left", HumanDuration(left)));
        let parts = [
            share("score", self.score),
            share("solved", self.solved),
            Some(format!("{speed:.0} tokens/s")),
            Some(format!("{:.1} s", self.seconds)),
            left,
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        format!("step {}/{}: {}", self.step, self.steps, parts.join(", "))
    }
}

/// Mean duration of steps.
#[derive(Debug, Default, Clone, Copy)]
struct Pace {
    steps: u64,
    seconds: f64,
}

impl Pace {
    /// Adds a step, and returns the remaining time at the mean pace so far.
    fn left(&mut self, line: &StepLine) -> Duration {
        self.steps += 1;
        self.seconds += line.seconds;
        let steps = line.steps.saturating_sub(line.step) as f64;
        Duration::try_from_secs_f64(steps * self.seconds / self.steps as f64).unwrap_or_default()
    }
}

/// Formats the speed and the remaining time at the current rate of episodes. The remaining time is omitted until one
/// episode has ended.
fn speed(ended: u64, episodes: u64, tokens: u64, elapsed: Duration) -> String {
    let speed = tokens as f64 / elapsed.as_secs_f64().max(1e-9);
    let share = episodes.saturating_sub(ended) as f64 / ended as f64;
    let left = Duration::try_from_secs_f64(elapsed.as_secs_f64() * share);
    match left {
        Ok(left) if ended > 0 && ended < episodes => {
            format!("{speed:.0} tokens/s, {} left", HumanDuration(left))
        }
        _ => format!("{speed:.0} tokens/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: StepLine =
        StepLine { step: 3, steps: 10, score: Some(0.5), solved: None, tokens: 600, seconds: 2.0 };

    #[test]
    fn a_line_says_what_is_known() {
        let left = Duration::from_secs(14);
        let expected = "step 3/10: score 0.500, 300 tokens/s, 2.0 s, 14 seconds left";
        assert_eq!(LINE.text(left), expected);
        let last = StepLine { step: 10, solved: Some(0.25), ..LINE };
        let expected = "step 10/10: score 0.500, solved 0.250, 300 tokens/s, 2.0 s";
        assert_eq!(last.text(Duration::ZERO), expected);
    }

    #[test]
    fn the_time_left_is_that_of_the_steps_seen() {
        let mut pace = Pace::default();
        assert_eq!(pace.left(&LINE), Duration::from_secs(14));
        let next = StepLine { step: 4, seconds: 4.0, ..LINE };
        assert_eq!(pace.left(&next), Duration::from_secs(18));
    }

    #[test]
    fn no_time_is_left_to_say_before_an_episode_has_ended() {
        let ten = Duration::from_secs(10);
        assert_eq!(speed(0, 64, 500, ten), "50 tokens/s");
        assert_eq!(speed(16, 64, 500, ten), "50 tokens/s, 30 seconds left");
        assert_eq!(speed(64, 64, 500, ten), "50 tokens/s");
    }
}

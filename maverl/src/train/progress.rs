//! Receivers of the progress of a run.

pub(super) mod bar;
pub(super) mod commands;
pub(super) mod display;
pub(super) mod heartbeat;
pub(super) mod interrupt;
pub(super) mod lines;

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use indicatif::HumanDuration;

use crate::output;
use crate::train::progress::commands::own_name;
use crate::trajectory::Episode;

/// Summary of a step for people.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct StepLine {
    /// Number of completed steps.
    pub step: u64,
    /// Number of all steps.
    pub steps: u64,
    /// Mean score of the step's episodes, without reward parts and penalties; `None` if none was scored.
    pub score: Option<f64>,
    /// Share of scored episodes that solved their task.
    pub solved: Option<f64>,
    /// Mean loss of the updates of a step without episodes.
    pub loss: Option<f64>,
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
    /// Called with each episode when it ends, in arbitrary order.
    fn on_episode(&self, episode: &Episode) {
        let _ = episode;
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

/// Prints a line on standard error. A reader that has closed it (`2>&1 | head`) does not end the run.
pub fn tell(line: impl Display) {
    output::tell(own_name(&line.to_string()));
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
    pub(super) fn text(&self, left: Duration) -> String {
        let shares = [("score", self.score), ("solved", self.solved), ("loss", self.loss)];
        let [score, solved, loss] =
            shares.map(|(name, value)| value.map(|value| format!("{name} {value:.3}")));
        let speed = (self.tokens > 0).then(|| self.tokens as f64 / self.seconds.max(1e-9));
        let left = (self.step < self.steps).then(|| format!("{} left", HumanDuration(left)));
        let parts = [
            score,
            solved,
            loss,
            speed.map(|speed| format!("{speed:.0} tokens/s")),
            Some(format!("{:.1} s", self.seconds)),
            left,
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        format!("step {}/{}: {}", self.step, self.steps, parts.join(", "))
    }
}

/// Mean duration of steps.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct StepPace {
    steps: u64,
    seconds: f64,
}

impl StepPace {
    /// Adds a step, and returns the remaining time at the mean pace so far.
    pub(super) fn left(&mut self, line: &StepLine) -> Duration {
        self.steps += 1;
        self.seconds += line.seconds;
        let steps = line.steps.saturating_sub(line.step) as f64;
        Duration::try_from_secs_f64(steps * self.seconds / self.steps as f64).unwrap_or_default()
    }
}

/// Formats the number of tokens per second.
pub(super) fn speed(tokens: u64, elapsed: Duration) -> String {
    format!("{:.0} tokens/s", tokens as f64 / elapsed.as_secs_f64().max(1e-9))
}

/// Computes the remaining time at the current rate of episodes; `None` before the first has ended and after the last.
pub(super) fn time_left(ended: u64, episodes: u64, elapsed: Duration) -> Option<HumanDuration> {
    let share = episodes.saturating_sub(ended) as f64 / ended as f64;
    let left = Duration::try_from_secs_f64(elapsed.as_secs_f64() * share).ok()?;
    (ended > 0 && ended < episodes).then_some(HumanDuration(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: StepLine = StepLine {
        step: 3,
        steps: 10,
        score: Some(0.5),
        solved: None,
        loss: None,
        tokens: 600,
        seconds: 2.0,
    };

    #[test]
    fn a_line_says_what_is_known() {
        let left = Duration::from_secs(14);
        let expected = "step 3/10: score 0.500, 300 tokens/s, 2.0 s, 14 seconds left";
        assert_eq!(LINE.text(left), expected);
        let last = StepLine { step: 10, solved: Some(0.25), ..LINE };
        let expected = "step 10/10: score 0.500, solved 0.250, 300 tokens/s, 2.0 s";
        assert_eq!(last.text(Duration::ZERO), expected);
        let supervised = StepLine { score: None, loss: Some(0.625), tokens: 0, ..last };
        let supervised = StepLine { solved: None, ..supervised };
        assert_eq!(supervised.text(Duration::ZERO), "step 10/10: loss 0.625, 2.0 s");
    }

    #[test]
    fn the_time_left_is_that_of_the_steps_seen() {
        let mut pace = StepPace::default();
        assert_eq!(pace.left(&LINE), Duration::from_secs(14));
        let next = StepLine { step: 4, seconds: 4.0, ..LINE };
        assert_eq!(pace.left(&next), Duration::from_secs(18));
    }

    #[test]
    fn no_time_is_left_to_say_before_an_episode_has_ended() {
        let ten = Duration::from_secs(10);
        let left = |ended| time_left(ended, 64, ten).map(|left| left.to_string());
        assert_eq!(speed(500, ten), "50 tokens/s");
        assert_eq!((left(0), left(64)), (None, None));
        assert_eq!(left(16).as_deref(), Some("30 seconds"));
    }
}

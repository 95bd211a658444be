//! Episodes that could not be scored: the allowed share, and the messages about them.

use crate::eval::{EvalReport, EvalSpec};
use crate::train::error::TrainError;
use crate::trajectory::{Episode, Fault, Outcome};

/// Maximum number of messages of faults.
const MESSAGES: usize = 3;

/// Returns the report of episodes of held-out tasks. `declared` are the names of the parts of the reward that `[rewards]` has.
///
/// # Errors
///
/// If none of them was scored.
pub fn report<'n>(
    spec: &EvalSpec,
    declared: impl IntoIterator<Item = &'n String>,
    episodes: &[Episode],
) -> Result<EvalReport, TrainError> {
    let report = EvalReport::of(spec, episodes);
    let report = report.map(|report| report.with_declared_parts(declared));
    report.ok_or_else(|| none_scored(episodes, format!("on `{}`", spec.split)))
}

/// Fails if more than the allowed share of episodes could not be scored.
pub(crate) fn check(episodes: &[Episode], allowed: f64) -> Result<(), TrainError> {
    let unscored = faults(episodes).count();
    if unscored as f64 <= allowed * episodes.len() as f64 {
        return Ok(());
    }
    Err(TrainError::Unscored {
        unscored,
        episodes: episodes.len(),
        allowed,
        kinds: kinds(episodes),
        messages: messages(episodes),
    })
}

/// Returns the error that no episode was scored.
pub(crate) fn none_scored(episodes: &[Episode], of: String) -> TrainError {
    let (kinds, messages) = (kinds(episodes), messages(episodes));
    TrainError::NoneScored { episodes: episodes.len(), of, kinds, messages }
}

/// Returns the warning about unscored episodes of step `step`, counted from 0.
pub(crate) fn left_out(step: u64, episodes: &[Episode]) -> Option<String> {
    let (unscored, all) = (faults(episodes).count(), episodes.len());
    let first = faults(episodes).next()?;
    let step = step + 1;
    Some(format!(
        "step {step}: {unscored} of {all} episodes could not be scored and teach nothing: {first}"
    ))
}

fn faults(episodes: &[Episode]) -> impl Iterator<Item = &Fault> {
    episodes.iter().filter_map(|episode| match &episode.outcome {
        Outcome::Unscored(fault) => Some(fault),
        Outcome::Scored(_) => None,
    })
}

/// Lists the number of episodes of each kind of fault.
fn kinds(episodes: &[Episode]) -> String {
    let kinds = crate::metrics::unscored_counts(episodes).into_iter().filter(|(_, n)| *n > 0);
    let kinds: Vec<String> = kinds.map(|(kind, n)| format!("{}: {n}", kind.name())).collect();
    kinds.join(", ")
}

/// Returns the first messages, without duplicates.
fn messages(episodes: &[Episode]) -> Vec<String> {
    let mut messages: Vec<String> = Vec::new();
    for fault in faults(episodes) {
        let message = fault.to_string();
        if messages.len() < MESSAGES && !messages.contains(&message) {
            messages.push(message);
        }
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_dir::tests::episode;
    use crate::trajectory::FaultKind;

    fn timed_out(mut episode: Episode) -> Episode {
        episode.outcome = Outcome::Unscored(Fault::new(FaultKind::Timeout, "too late"));
        episode
    }

    #[test]
    fn too_many_unscored_episodes_are_an_error_with_kinds_and_messages() {
        let mut episodes = vec![episode("a", 0, true, 1), episode("a", 1, true, 1)];
        assert!(check(&episodes, 0.0).is_ok());
        let late = timed_out(episodes.remove(1));
        episodes.push(late);
        assert!(check(&episodes, 0.5).is_ok());
        let error = check(&episodes, 0.4).map_err(|e| e.to_string());
        let text = error.expect_err("half is more than 0.4");
        for part in ["1 of 2 episodes", "timeout: 1", "too late", "`rollout.max_unscored` = 0.4"] {
            assert!(text.contains(part), "{text}");
        }
        let told = left_out(2, &episodes).expect("one is left out");
        let start = "step 3: 1 of 2 episodes could not be scored and teach nothing: ";
        assert!(told.starts_with(start), "{told}");
    }

    #[test]
    fn where_no_episode_is_scored_the_cause_is_shown_whatever_share_is_allowed() {
        let episodes = [timed_out(episode("a", 0, true, 1)), timed_out(episode("b", 0, true, 1))];
        assert!(check(&episodes, 1.0).is_ok());
        let spec = EvalSpec { split: "test".to_owned(), samples: 1, temperature: None, ask: None };
        let text = report(&spec, [], &episodes).map_err(|e| e.to_string()).expect_err("no score");
        let expected =
            "not one of 2 episodes on `test` could be scored (timeout: 2):\n  timeout: too late";
        assert_eq!(text, expected);
    }
}

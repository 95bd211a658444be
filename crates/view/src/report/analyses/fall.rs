//! The largest fall of the mean score from one step to the next, and the cause of a change from a step to the next.

use maverl::run_dir::TRAIN;
use serde_json::Value;

use super::change::{
    ScoreChange, ScoredEpisode, add_evidence, has_zero, score_change, score_interval,
};
use super::divergence::{DivergencePlace, loss_causes};
use super::failed_replies::failed_replies;
use crate::compact::sort_by;
use crate::report::rows::index::RowIndex;
use crate::report::rows::index::counts::Played;
use crate::report::rows::run::ReportedRun;

/// Smallest fall that a notice is about.
const LARGE: f64 = 0.1;
/// Number of earlier steps whose changes say which change is usual, and the smallest number of them.
const EARLIER: usize = 10;
const FEWEST: usize = 5;
/// Factor of the usual deviation of a change above which a fall is unusual.
const UNUSUAL: f64 = 6.0;
/// Number of falls, the largest ones, of which the first beyond chance is looked for.
const TRIED: usize = 32;

/// Fall of the mean score from a step to the next one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fall {
    pub(crate) step: u32,
    /// Step before.
    pub(crate) before: u32,
    /// Mean scores of the step before and of the step.
    pub(crate) scores: [f64; 2],
    /// True if other tasks of the same kinds are no reason for it, by the interval of the page of the step.
    pub(crate) beyond_chance: bool,
    /// True if it is larger than changes of earlier steps.
    pub(crate) unusual: bool,
}

impl Fall {
    /// Returns true if it needs attention: a large one beyond chance, in a run whose score changes less.
    pub(crate) fn is_problem(&self) -> bool {
        self.beyond_chance && self.unusual
    }
}

/// Returns the median of numbers; 0 without any.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    sort_by(&mut numbers, f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(0.0)
}

/// Returns true if the fall to the value at an index is large, and beyond the spread of the changes before.
fn is_unusual(means: &[(u32, f64)], at: usize) -> bool {
    let earlier = &means[at.saturating_sub(EARLIER)..at];
    if earlier.len() < FEWEST {
        return false;
    }
    let changes: Vec<f64> = earlier.windows(2).map(|two| two[1].1 - two[0].1).collect();
    let usual = median(changes.clone());
    let spread = median(changes.into_iter().map(|change| (change - usual).abs()).collect());
    let fall = means[at - 1].1 - means[at].1;
    fall > LARGE && fall + usual > UNUSUAL * spread
}

/// Returns the largest fall beyond chance; without one, the largest of all. `None` if the score never fell.
pub(crate) fn largest_fall(index: &RowIndex) -> Option<Fall> {
    let means = index.mean_scores(TRAIN);
    let falls = (1..means.len()).map(|at| (at, means[at - 1].1 - means[at].1));
    let mut falls: Vec<(usize, f64)> = falls.filter(|(_, by)| *by > 0.0).collect();
    sort_by(&mut falls, |(a, by), (b, other)| other.total_cmp(by).then(a.cmp(b)));
    let beyond = falls
        .iter()
        .take(TRIED)
        .map(|&(at, _)| fall_at(index, &means, at))
        .find(|fall| fall.beyond_chance);
    beyond.or_else(|| falls.first().map(|&(at, _)| fall_at(index, &means, at)))
}

/// Returns the fall from a step to the next one.
fn fall_at(index: &RowIndex, means: &[(u32, f64)], at: usize) -> Fall {
    let ((before, old), (step, new)) = (means[at - 1], means[at]);
    let [new_scores, old_scores] = [step, before].map(|step| index.task_scores(TRAIN, step));
    let interval = score_interval(&new_scores, &old_scores, new - old);
    Fall {
        step,
        before,
        scores: [old, new],
        beyond_chance: interval.is_some_and(|interval| !has_zero(interval)),
        unusual: is_unusual(means, at),
    }
}

/// Describes the largest fall with its cause; null if the run has fewer than two steps.
pub(crate) fn fall_summary(run: &ReportedRun) -> Value {
    let (steps, fall) = {
        let content = run.lock_content();
        (content.index.stage_steps(TRAIN).len(), largest_fall(&content.index))
    };
    let Some(Fall { step, before, scores: [old, new], beyond_chance, .. }) = fall else {
        let text = "Reward: the score never fell from one step to the next.";
        return if steps < 2 {
            Value::Null
        } else {
            object!({ "step": Value::Null, "text": text })
        };
    };
    let text = if beyond_chance {
        let change = explain_change(run, step, before).map(|(change, _)| change);
        let cause = change.and_then(|change| change.cause).unwrap_or_default();
        format!(
            "Reward: its largest fall is in step {step}. The score fell from {old:.3} to {new:.3}: {cause}."
        )
    } else {
        format!(
            "Reward: no fall is beyond chance. The largest is in step {step}, from {old:.3} to {new:.3}: other tasks of the \
             same kinds are reason enough."
        )
    };
    object!({ "step": step, "text": text })
}

/// Returns the change of the score to a step from the one before with its cause, and sentences on replies that lost
/// episodes; `None` if one of the steps has no scored episode.
pub(crate) fn explain_change(
    run: &ReportedRun,
    step: u32,
    before: u32,
) -> Option<(ScoreChange, Option<String>)> {
    let (played, divergences, now) = scored_episodes(run, step);
    let mut change = score_change(&now, &scored_episodes(run, before).2, before)?;
    let failure = failed_replies(&run.files, &played, &divergences, &change);
    if let Some(failure) = &failure {
        add_evidence(&mut change, &failure.evidence, before);
    }
    Some((change, failure.map(|failure| failure.text)))
}

/// Returns the scored episodes of a step, where they diverge from solved ones, and what a change depends on of them.
fn scored_episodes(
    run: &ReportedRun,
    step: u32,
) -> (Vec<Played>, Vec<DivergencePlace>, Vec<ScoredEpisode>) {
    let (played, sources) = {
        let content = run.lock_content();
        let played = content.index.played_episodes(TRAIN, [step; 2]);
        let sources = played.iter().map(|one| content.index.task_source(one.task).to_owned());
        let sources: Vec<String> = sources.collect();
        (played, sources)
    };
    let divergences = loss_causes(&run.files, &played);
    let scored = played
        .iter()
        .zip(sources)
        .zip(&divergences)
        .map(|((of, source), (cause, solved)): ((&Played, String), &DivergencePlace)| {
            ScoredEpisode {
                n: of.location.n,
                task: of.task,
                source,
                score: of.score,
                cause: cause.clone(),
                solved: solved.map(|(other, _)| played[other].location.n),
            }
        })
        .collect();
    (played, divergences, scored)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use maverl::run_dir::EpisodeRow;
    use maverl::run_dir::testing::episode;

    /// Returns an index of steps of 16 tasks, of which so many are solved.
    fn index(solved: &[u32]) -> RowIndex {
        let mut index = RowIndex::default();
        for (step, solved) in (1..).zip(solved) {
            for n in 0..16 {
                let one = episode(&format!("train-{step}-{n}"), 0, n < *solved, 1);
                index.add_made(&EpisodeRow::new(TRAIN, step, n.into(), [0, 0], &one));
            }
        }
        index
    }

    #[test]
    fn the_largest_fall_beyond_chance_is_found_before_larger_ones_within_it() {
        let fall = largest_fall(&index(&[12, 13, 12, 13, 12, 13, 3, 12, 8])).unwrap();
        assert_eq!((fall.step, fall.before, fall.scores), (7, 6, [13.0 / 16.0, 3.0 / 16.0]));
        assert!(fall.is_problem());
        // 4 of 16 tasks fewer are chance.
        let fall = largest_fall(&index(&[12, 11, 12, 8])).unwrap();
        assert_eq!((fall.step, fall.beyond_chance, fall.is_problem()), (4, false, false));
        assert_eq!(largest_fall(&index(&[1, 2, 2, 9])), None);
        assert_eq!(largest_fall(&index(&[])), None);
    }

    #[test]
    fn a_fall_is_no_problem_where_the_score_always_changes_as_much() {
        let fall = largest_fall(&index(&[14, 4, 14, 4, 14, 4, 14, 2])).unwrap();
        assert_eq!((fall.step, fall.beyond_chance, fall.unusual), (8, true, false));
        // Of a short run, no change is known to be usual.
        assert!(!largest_fall(&index(&[14, 14, 14, 2])).unwrap().is_problem());
        assert!(largest_fall(&index(&[14, 14, 14, 14, 14, 2])).unwrap().is_problem());
    }
}

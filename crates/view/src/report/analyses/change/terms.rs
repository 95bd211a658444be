//! Terms of a change of the mean score, and the arithmetic of them.

use std::collections::BTreeMap;

use maverl::eval::student;
use serde::Serialize;

use crate::compact::{collect_into, sort_by};
use crate::report::analyses::divergence::{Cause, CauseKind};

/// An episode, as far as the change depends on it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScoredEpisode {
    pub(crate) n: u32,
    pub(crate) task: u32,
    pub(crate) source: String,
    pub(crate) score: f64,
    pub(crate) cause: Cause,
    /// Number of the solved episode that it diverges from.
    pub(crate) solved: Option<u32>,
}

/// Number of episodes, and their mean score.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct ScoredShare {
    pub(crate) episodes: usize,
    pub(crate) score: f64,
}

/// A source of tasks in both steps.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SourceChange {
    pub(crate) source: String,
    pub(crate) now: ScoredShare,
    pub(crate) before: ScoredShare,
    /// Number of its tasks now and before.
    pub(crate) tasks: [usize; 2],
    /// Part of the change that comes from its other share of the episodes.
    pub(crate) mix: f64,
    /// Part of the change that comes from its other score.
    pub(crate) within: f64,
}

/// The episodes of a cause, of sources that both steps have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ChangeTerm {
    pub(crate) cause: Cause,
    pub(crate) text: String,
    /// Number of episodes now and before.
    pub(crate) episodes: [usize; 2],
    /// Number of those before, with the shares that the sources have now.
    pub(crate) weighted: f64,
    /// Part of the change that comes from them.
    pub(crate) by: f64,
    /// An episode of this step, and the solved one that it diverges from.
    pub(crate) example: Option<(u32, Option<u32>)>,
}

/// The change of the mean score.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ScoreChange {
    pub(crate) now: f64,
    pub(crate) before: f64,
    pub(crate) by: f64,
    /// 95 % interval of the change with other tasks of the same kind; `None` for a step of one task.
    pub(crate) interval: Option<[f64; 2]>,
    /// Sum over the sources: other shares.
    pub(crate) mix: f64,
    /// Sum over sources that the step before did not have.
    pub(crate) new: f64,
    pub(crate) sources: Vec<SourceChange>,
    /// Terms of sources that both steps have, the largest first.
    pub(crate) terms: Vec<ChangeTerm>,
    /// Clause with the cause; `None` within chance, or without a change to two decimals.
    pub(crate) cause: Option<String>,
    /// Sentence with the change and its cause.
    pub(crate) answer: String,
    /// Sentence with the parts of the change; empty without a cause.
    pub(crate) parts: String,
    /// Sentences on it, the largest part first.
    pub(crate) text: Vec<String>,
}

/// Task and score of an episode.
pub(crate) type ScoredTask = (u32, f64);

impl SourceChange {
    /// Returns true if both steps have episodes of the source.
    pub(super) fn is_in_both(&self) -> bool {
        self.now.episodes > 0 && self.before.episodes > 0
    }
}

impl ScoreChange {
    /// Returns the number of episodes of the later and of the earlier step.
    pub(super) fn episode_counts(&self) -> [usize; 2] {
        let counts = self.sources.iter().map(|of| [of.now.episodes, of.before.episodes]);
        counts.fold([0, 0], |[n, m], [now, before]| [n + now, m + before])
    }

    /// True if other tasks of the same kinds are reason enough for the change.
    pub(crate) fn is_chance(&self) -> bool {
        self.interval.is_some_and(has_zero)
    }

    /// Returns a part as far as it goes the way of the change.
    pub(super) fn share_along(&self, part: f64) -> f64 {
        if self.by < 0.0 { -part } else { part }
    }

    /// Returns the part of the change from other scores of equal sources.
    pub(super) fn within_sources(&self) -> f64 {
        self.terms.iter().map(|term| term.by).sum()
    }

    /// Returns the largest term, unless another mix of tasks or new sources explain more than all terms.
    pub(crate) fn leading_term(&self) -> Option<&ChangeTerm> {
        let most = self
            .terms
            .iter()
            .max_by(|a, b| self.share_along(a.by).total_cmp(&self.share_along(b.by)))?;
        let others = self.share_along(self.mix).max(self.share_along(self.new));
        (self.share_along(self.within_sources()) >= others && self.share_along(most.by) > 0.0)
            .then_some(most)
    }
}

/// Returns true if an interval has 0.
pub(crate) fn has_zero([low, high]: [f64; 2]) -> bool {
    low <= 0.0 && high >= 0.0
}

/// Returns the mean of scores; 0 without any.
pub(super) fn mean_score<'o>(of: impl Iterator<Item = &'o ScoredEpisode>) -> ScoredShare {
    let (episodes, sum) = of.fold((0, 0.0), |(n, sum), one| (n + 1, sum + one.score));
    ScoredShare { episodes, score: sum / f64::max(episodes as f64, 1.0) }
}

/// Returns the variance of the mean score over tasks, of which all episodes of a task are drawn together, and the
/// degrees of freedom.
fn score_variance(of: &[ScoredTask]) -> Option<(f64, f64)> {
    let mean = of.iter().map(|(_, score)| score).sum::<f64>() / of.len() as f64;
    let mut tasks: BTreeMap<u32, f64> = BTreeMap::new();
    for (task, score) in of {
        *tasks.entry(*task).or_default() += score - mean;
    }
    let free = tasks.len().checked_sub(1).filter(|free| *free > 0)? as f64;
    let squares: f64 = tasks.values().map(|sum| sum * sum).sum();
    Some((squares * (free + 1.0) / free / (of.len() as f64).powi(2), free))
}

/// Returns the 95 % interval of a change of the mean score by Welch's t; `None` for a step of one task.
pub(crate) fn score_interval(
    now: &[ScoredTask],
    before: &[ScoredTask],
    by: f64,
) -> Option<[f64; 2]> {
    let ((a, a_free), (b, b_free)) = (score_variance(now)?, score_variance(before)?);
    let both = a + b;
    if both <= 0.0 {
        return Some([by, by]);
    }
    let free = both * both / (a * a / a_free + b * b / b_free);
    let half = student((free as usize).max(1)) * both.sqrt();
    half.is_finite().then_some([by - half, by + half])
}

/// Splits what sources that both steps have add to the change by the cause of each episode.
pub(super) fn change_terms(
    now: &[ScoredEpisode],
    before: &[ScoredEpisode],
    sources: &[SourceChange],
) -> Vec<ChangeTerm> {
    let solved =
        mean_score(now.iter().chain(before).filter(|one| one.cause.kind == CauseKind::Solved));
    let scores = now.iter().chain(before).map(|one| one.score);
    let full = if solved.episodes > 0 { solved.score } else { scores.fold(f64::MIN, f64::max) };
    let both = sources.iter().filter(|of| of.is_in_both());
    let both: BTreeMap<&str, &SourceChange> = collect_into(both.map(|of| (of.source.as_str(), of)));
    let mut sums: BTreeMap<&Cause, ([usize; 2], f64, f64)> = BTreeMap::new();
    for (side, one) in now.iter().map(|one| (0, one)).chain(before.iter().map(|one| (1, one))) {
        let Some(source) = both.get(one.source.as_str()) else { continue };
        let loss = (full - one.score) / now.len() as f64;
        let (episodes, weighted, by) = sums.entry(&one.cause).or_default();
        episodes[side] += 1;
        // Episodes of the step before count as many as those of this step.
        let weight = source.now.episodes as f64 / source.before.episodes as f64;
        *weighted += if side == 0 { 0.0 } else { weight };
        *by += if side == 0 { -loss } else { loss * weight };
    }
    let terms = sums.into_iter().map(|(cause, (episodes, weighted, by))| ChangeTerm {
        cause: cause.clone(),
        text: cause.text(),
        episodes,
        weighted,
        by,
        example: example_of(now, cause),
    });
    let mut terms: Vec<ChangeTerm> = terms.collect();
    sort_by(&mut terms, |a, b| b.by.abs().total_cmp(&a.by.abs()));
    terms
}

/// Returns an episode with a cause and the solved one that it diverges from: the first of the task that has most of them.
fn example_of(now: &[ScoredEpisode], cause: &Cause) -> Option<(u32, Option<u32>)> {
    let its: Vec<&ScoredEpisode> = now.iter().filter(|one| one.cause == *cause).collect();
    let of = its.iter().max_by_key(|one| {
        let of_task = its.iter().filter(|other| other.task == one.task).count();
        (of_task, std::cmp::Reverse(one.n))
    })?;
    Some((of.n, of.solved))
}

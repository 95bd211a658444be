//! Metrics of the branches of a step.

use std::collections::BTreeMap;

use crate::metrics::Metrics;
use crate::plan::Plan;
use crate::task::Task;
use crate::train::record::measure::{mean_of, metrics_below};
use crate::trajectory::{Episode, Turn, TurnPath};

/// Returns the metrics of the branches of a step; none if the estimator compares no branches.
pub(crate) fn branches(plan: &Plan, episodes: &[Episode]) -> Metrics {
    if plan.algorithm.advantage.branches().is_none() {
        return Metrics::default();
    }
    let of_branches = || episodes.iter().filter(|episode| episode.branch.is_some());
    let recorded = RecordedTurns::of(episodes);
    let sampled = |episode: &Episode| {
        episode.turns.iter().filter(|turn| !recorded.gives(episode, turn)).count()
    };
    let turns: usize = of_branches().map(sampled).sum();
    let replayed: usize = of_branches().map(|episode| recorded.tokens(episode)).sum();
    let deviations = branch_deviations(episodes);
    let flat = deviations.iter().filter(|deviation| **deviation == 0.0).count();
    let share = flat as f64 / deviations.len().max(1) as f64;
    let values = [
        ("episodes", of_branches().count() as f64),
        ("points", deviations.len() as f64),
        ("turns", turns as f64),
        ("tokens_replayed", replayed as f64),
        ("spread", mean_of(deviations)),
        ("flat_frac", share),
    ];
    metrics_below("branch", values)
}

/// Turns of the played episodes of a step.
struct RecordedTurns<'e>(BTreeMap<(&'e str, &'e str, u32, &'e TurnPath), &'e Turn>);

impl<'e> RecordedTurns<'e> {
    fn of(episodes: &'e [Episode]) -> Self {
        let mut turns = BTreeMap::new();
        for episode in episodes.iter().filter(|episode| episode.branch.is_none()) {
            let Task { source, id, .. } = &episode.task;
            for turn in &episode.turns {
                turns.insert((source.as_str(), id.as_str(), episode.index, &turn.path), turn);
            }
        }
        Self(turns)
    }

    /// Returns true if a turn of a branch is a recorded one.
    fn gives(&self, branch: &Episode, turn: &Turn) -> bool {
        let Some(point) = &branch.branch else { return false };
        let Task { source, id, .. } = &branch.task;
        let played = || self.0.get(&(source.as_str(), id.as_str(), point.of, &turn.path)).copied();
        branch.recalls(&turn.path) || (!point.drawn.is_empty() && played() == Some(turn))
    }

    /// Returns the number of tokens of the replies that a branch has from another episode.
    fn tokens(&self, branch: &Episode) -> usize {
        let recalled = branch.turns.iter().filter(|turn| self.gives(branch, turn));
        recalled.filter_map(|turn| turn.tokens.as_ref()).map(|tokens| tokens.completion.len()).sum()
    }
}

/// Returns the deviation (n) of the scores of the branches at each turn that has scored ones.
fn branch_deviations(episodes: &[Episode]) -> Vec<f64> {
    let mut scores: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for episode in episodes {
        let (Some(branch), Some(score)) = (&episode.branch, episode.score()) else { continue };
        let Task { source, id, .. } = &episode.task;
        scores.entry((source, id, branch.of, &branch.at)).or_default().push(score.reward);
    }
    scores.values().map(|scores| deviation(scores)).collect()
}

/// Returns the deviation (n) of numbers.
fn deviation(of: &[f64]) -> f64 {
    let mean = mean_of(of.iter().copied());
    mean_of(of.iter().map(|value| (value - mean).powi(2))).sqrt()
}

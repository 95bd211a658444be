//! Advantages by a declared estimator: samples become plain data.

use super::{dense, grouping};
use crate::algo::Sample;
use crate::credit::{RewardColumn, RewardedStep};
use crate::plan::AlgorithmPlan;
use crate::trajectory::{Episode, RewardOf};

/// Name of the part of a reward that is the environment's score.
const SCORE: &str = "score";

/// Name of whatever else changed a reward: shaping, later rounds, a baseline.
const OTHER: &str = "other";

/// The advantage of each token of each sample `[N][T]` by the declared estimator of the algorithm; none without one.
///
/// `values` are those of a critic, `[N][places]`; no list where there is no critic.
///
/// # Panics
///
/// If there are values, and not a list of them for each sample.
pub fn declared(
    episodes: &[Episode],
    samples: &[Sample],
    values: &[Vec<f64>],
    algorithm: &AlgorithmPlan,
) -> Option<Vec<Vec<f64>>> {
    let estimator = &*algorithm.declared.advantage.as_ref()?.value;
    let step = rewarded(episodes, samples, values, algorithm);
    let advantages = step.estimate(estimator);
    let mut first = 0;
    let by_token = samples.iter().zip(&advantages).map(|(sample, &whole)| {
        if !estimator.by_token() {
            return vec![whole; sample.tokens];
        }
        first += sample.tokens;
        advantages[first - sample.tokens..first].to_vec()
    });
    Some(by_token.collect())
}

/// The samples of a step as plain data.
fn rewarded(
    episodes: &[Episode],
    samples: &[Sample],
    values: &[Vec<f64>],
    algorithm: &AlgorithmPlan,
) -> RewardedStep {
    let ids = grouping(samples, algorithm.group_by);
    let has_values = algorithm.critic.is_some();
    assert!(!has_values || values.len() == samples.len(), "declared: values for each sample");
    RewardedStep {
        rewards: samples.iter().map(|sample| sample.reward - sample.baseline).collect(),
        parts: parts(episodes, samples),
        values: has_values.then(|| values.to_vec()),
        seats: dense(samples.iter().map(|sample| sample.seat)),
        turns: samples.iter().map(|sample| sample.turn).collect(),
        tasks: dense(samples.iter().map(|sample| &sample.task)),
        episodes: dense(samples.iter().map(|sample| sample.episode)),
        lengths: samples.iter().map(|sample| sample.tokens).collect(),
        units: ids.unit,
        groups: ids.group,
    }
}

/// The parts of each sample's reward: the score, then named parts, then the rest if there is some.
fn parts(episodes: &[Episode], samples: &[Sample]) -> Vec<RewardColumn> {
    let mut columns = vec![column(SCORE, samples.len())];
    for (row, sample) in samples.iter().enumerate() {
        let episode = &episodes[sample.episode];
        columns[0].values[row] = episode.score().map_or(0.0, |score| score.reward);
        let seat = &episode.turns[sample.turn].seat;
        for part in episode.rewards.iter().filter(|part| match &part.of {
            RewardOf::Episode => true,
            RewardOf::Seat(of) => of == seat,
            RewardOf::Turn(of) => *of == sample.turn,
        }) {
            let found = columns.iter().position(|column| column.name == part.name);
            let place = found.unwrap_or_else(|| {
                columns.push(column(&part.name, samples.len()));
                columns.len() - 1
            });
            columns[place].values[row] += part.value;
        }
    }
    columns[1..].sort_by(|a, b| a.name.cmp(&b.name));
    columns.extend(rest(episodes, samples));
    columns
}

/// Rest of the rewards beside the parts of the episodes; none if it is 0 everywhere.
fn rest(episodes: &[Episode], samples: &[Sample]) -> Option<RewardColumn> {
    let mut rest = column(OTHER, samples.len());
    for (value, sample) in rest.values.iter_mut().zip(samples) {
        let whole = episodes[sample.episode].turn_reward(sample.turn).unwrap_or(0.0);
        *value = sample.reward - whole - sample.baseline;
    }
    rest.values.iter().any(|value| *value != 0.0).then_some(rest)
}

fn column(name: &str, rows: usize) -> RewardColumn {
    RewardColumn { name: name.to_owned(), values: vec![0.0; rows] }
}

//! Samples as the plain data that estimators take, and advantages by a declared one.

use crate::algo::Sample;
use crate::algo::advantage::branched::branch_ids;
use crate::config::AdvantagePlan;
use crate::credit::{Estimators, GroupBy, RewardColumn, RewardedStep, dense};
use crate::plan::AlgorithmPlan;
use crate::trajectory::{Episode, RewardOf, RewardPart};

/// The advantage of each token of each sample `[N][T]` by the declared estimator of the algorithm; none without one.
///
/// `values` are those of a critic, `[N][places]`; no list where there is no critic.
///
/// # Panics
///
/// If there are values, and not a list of them for each sample.
pub(crate) fn declared_advantages(
    episodes: &[Episode],
    samples: &[Sample],
    values: &[Vec<f64>],
    algorithm: &AlgorithmPlan,
    estimators: &Estimators,
) -> Option<Vec<Vec<f64>>> {
    let AdvantagePlan::Declared(declared) = &algorithm.advantage else { return None };
    let estimator = &*declared.value;
    let values = algorithm.critic.is_some().then_some(values);
    let step = rewarded_step(episodes, samples, values, estimator.group_by());
    let advantages = estimators.estimate(&step, estimator);
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
///
/// # Panics
///
/// If there are values, and not a list of them for each sample.
pub fn rewarded_step<'e>(
    episodes: &'e [Episode],
    samples: &[Sample],
    values: Option<&[Vec<f64>]>,
    by: GroupBy,
) -> RewardedStep<'e> {
    let given = values.is_none_or(|values| values.len() == samples.len());
    assert!(given, "rewarded: values for each sample");
    let ids = dense(samples.iter().map(|sample| sample.episode));
    let mut turn_parts = Vec::new();
    for (sample, &id) in samples.iter().zip(&ids) {
        if id == turn_parts.len() {
            turn_parts
                .push(episodes.get(sample.episode).map(Episode::own_rewards).unwrap_or_default());
        }
    }
    let mut step = RewardedStep {
        rewards: samples.iter().map(|sample| sample.reward - sample.baseline).collect(),
        parts: parts(episodes, samples),
        values: values.map(<[_]>::to_vec),
        seats: dense(samples.iter().map(|sample| sample.seat)),
        turns: samples.iter().map(|sample| sample.turn).collect(),
        tasks: dense(samples.iter().map(|sample| &sample.task)),
        episodes: ids,
        lengths: samples.iter().map(|sample| sample.tokens).collect(),
        units: Vec::new(),
        groups: Vec::new(),
        prompts: samples.iter().map(|sample| prompt_of(episodes, sample)).collect(),
        earned: samples.iter().map(|sample| sample.reward).collect(),
        recorded: samples.iter().map(|sample| whole_reward(episodes, sample)).collect(),
        seat_parts: samples.iter().map(|sample| of_seat(episodes, sample)).collect(),
        turn_parts,
        branches: branch_ids(episodes, samples),
    };
    (step.units, step.groups) = step.view().ids(by);
    step
}

/// Tokens of a sample's prompt.
fn prompt_of<'e>(episodes: &'e [Episode], sample: &Sample) -> &'e [u32] {
    let turn = episodes.get(sample.episode).and_then(|episode| episode.turns.get(sample.turn));
    turn.and_then(|turn| turn.tokens.as_ref()).map_or(&[][..], |tokens| tokens.prompt.as_slice())
}

/// Reward of a sample's turn by its episode.
fn whole_reward(episodes: &[Episode], sample: &Sample) -> f64 {
    let whole = episodes.get(sample.episode).and_then(|episode| episode.turn_reward(sample.turn));
    whole.unwrap_or(0.0)
}

/// Sum of the parts of a sample's reward that are for its seat.
fn of_seat(episodes: &[Episode], sample: &Sample) -> f64 {
    let Some(episode) = episodes.get(sample.episode) else { return 0.0 };
    let seat = &episode.turns[sample.turn].seat;
    let its = episode.rewards.iter();
    let its = its.filter(|part| matches!(&part.of, RewardOf::Seat(of) if of == seat));
    its.map(|part| part.value).sum()
}

/// The parts of each sample's reward: the score, then named parts, then the rest if there is some.
fn parts(episodes: &[Episode], samples: &[Sample]) -> Vec<RewardColumn> {
    let mut columns = vec![column(RewardPart::SCORE, samples.len())];
    for (row, sample) in samples.iter().enumerate() {
        let Some(episode) = episodes.get(sample.episode) else { continue };
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
    columns.extend(other_rewards(episodes, samples));
    columns
}

/// Rest of the rewards beside the parts of the episodes; none if it is 0 everywhere.
fn other_rewards(episodes: &[Episode], samples: &[Sample]) -> Option<RewardColumn> {
    let mut rest = column(RewardPart::OTHER, samples.len());
    for (value, sample) in rest.values.iter_mut().zip(samples) {
        *value = sample.reward - whole_reward(episodes, sample) - sample.baseline;
    }
    rest.values.iter().any(|value| *value != 0.0).then_some(rest)
}

fn column(name: &str, rows: usize) -> RewardColumn {
    RewardColumn { name: name.to_owned(), values: vec![0.0; rows] }
}

//! One step of reinforcement learning; follows the figure in `ARCHITECTURE.md`.

use std::borrow::Cow;
use std::time::Instant;

use crate::algo::advantage::{Valued, apply_future_rewards, valued, whiten_tokens};
use crate::algo::{
    Advantages, Sample, advantages, baselines, batches, declared, flat_tasks, is_greedy, samples,
    shaped_rewards, value_batches,
};
use crate::config::Baseline;
use crate::metrics::{Metrics, rollout};
use crate::plan::Plan;
use crate::run_dir::StepSamples;
use crate::runtime::{Batch, ValueBatch};
use crate::task::Task;
use crate::train::course::Stepped;
use crate::train::critic::ValuePredictions;
use crate::train::kl_penalty;
use crate::train::learn::{Updated, learn};
use crate::train::record::{Estimated, record};
use crate::train::state::AlgorithmState;
use crate::train::team::{Assignment, Team};
use crate::train::unscored::{left_out, none_scored};
use crate::train::{TrainError, measure};
use crate::trajectory::Episode;

/// Name of the estimators that are relative to groups.
const GROUP: &str = "group";

/// Runs step `step`, counted from 0: the team runs the step's tasks, and every trained policy is updated on its turns.
pub(super) async fn step(
    team: &Team<'_>,
    tasks: &[Task],
    step: u64,
    state: &mut AlgorithmState,
) -> Result<Stepped, TrainError> {
    let (Assignment { plan, rollout }, start) = (team.assignment(step), Instant::now());
    let before = (measure::work(&team.policies), rollout.usage());
    let mut episodes = play(team, tasks, step).await?;
    let played = start.elapsed();
    team.progress.work(&format!("step {}: learning", step + 1));
    kl_penalty::apply(team, plan, &mut episodes, state).await?;
    let Updated { metrics, flat, record } = learn(team, &episodes, step, None, state).await?;
    let mut timing = measure::timing(&episodes, played, start.elapsed());
    timing.extend(measure::engine(&team.policies, &before.0));
    timing.extend(measure::endpoints(&rollout.usage(), &before.1));
    let left_out = left_out(&episodes).map(|what| format!("step {}: {what}", step + 1));
    let warnings = left_out.into_iter().collect();
    let (samples, warnings_once) = (Some(record), Vec::new());
    Ok(Stepped { episodes, metrics, timing, flat, warnings, warnings_once, samples })
}

/// Runs the step's tasks. Flat tasks are replaced by others, as often as the algorithm allows.
async fn play(team: &Team<'_>, tasks: &[Task], step: u64) -> Result<Vec<Episode>, TrainError> {
    let group = 0..team.plan.task.group_size.get();
    let Assignment { plan, rollout } = team.assignment(step);
    let first = team.sampler.step(step).into_iter().map(|task| &tasks[task]);
    let mut episodes = team.play(rollout, "train", step, first, group.clone()).await?;
    let mut others = match team.plan.algorithm.resample {
        0 => Vec::new(),
        _ => team.sampler.others(step),
    }
    .into_iter();
    let mut seen = 0;
    for _ in 0..team.plan.algorithm.resample {
        let flat = flat_tasks(&episodes[seen..]).len();
        let fresh: Vec<&Task> = others.by_ref().take(flat).map(|task| &tasks[task]).collect();
        if fresh.is_empty() {
            break;
        }
        seen = episodes.len();
        episodes.extend(team.play(rollout, "train", step, fresh, group.clone()).await?);
    }
    if plan.algorithm.baseline == Baseline::Greedy {
        let greedy = rollout.at_temperature(plan, &team.policies, 0.0);
        let first = episodes.iter().filter(|episode| episode.index == group.start);
        let asked: Vec<Task> = first.map(|episode| episode.task.clone()).collect();
        let index = group.end..group.end + 1;
        episodes.extend(team.play(&greedy, "train", step, &asked, index).await?);
    }
    Ok(episodes)
}

/// Returns the samples of step `step`, counted from 0, that are trained on, and their metrics. Updates the state of the
/// algorithm.
pub(super) fn training_samples(
    plan: &Plan,
    episodes: &[Episode],
    step: u64,
    state: &mut AlgorithmState,
) -> Result<(Vec<Sample>, Metrics), TrainError> {
    let mut samples = samples(episodes, plan);
    shaped_rewards(episodes, &mut samples, &plan.algorithm);
    baselines(plan, episodes, &mut samples, &mut state.averages);
    if samples.is_empty() {
        let scored = episodes.iter().filter(|episode| episode.score().is_some()).count();
        if scored == 0 && !episodes.is_empty() {
            return Err(none_scored(episodes, format!("of step {}", step + 1)));
        }
        return Err(TrainError::NoSamples { step: step + 1, episodes: scored });
    }
    let mut metrics = rollout(&compared(plan, episodes));
    metrics.extend(kl_penalty::metrics(plan, episodes, &samples, state));
    if plan.algorithm.resample > 0 {
        let flat = flat_tasks(&compared(plan, episodes));
        metrics.set("group/dropped", flat.len() as f64);
        samples.retain(|sample| !flat.contains(&sample.task));
    }
    apply_future_rewards(&mut samples, &plan.algorithm);
    Ok((samples, metrics))
}

/// Batches of a step.
#[derive(Debug)]
pub(super) struct Batches {
    /// Metrics of the groups and values.
    pub(super) metrics: Metrics,
    /// One batch per trained policy; empty if the step is flat.
    pub(super) batches: Vec<(usize, Batch)>,
    /// One batch per critic, by the index of the policy that hosts it.
    pub(super) values: Vec<(usize, ValueBatch)>,
    /// True if there is nothing to learn from.
    pub(super) flat: bool,
    /// Samples with the terms of their advantages.
    pub(super) record: StepSamples,
}

/// Builds the batches of step `step`, counted from 0, from samples and predicted values. Pure, so a stored step gives
/// the same batches again.
pub(super) fn make_batches(
    plan: &Plan,
    episodes: &[Episode],
    samples: &[Sample],
    said: &ValuePredictions,
    step: u64,
) -> Batches {
    let mut among = advantages(episodes, samples, &plan.algorithm);
    let mut declared = declared(episodes, samples, &said.values, &plan.algorithm);
    if let Some(declared) = &declared {
        among.groups.flat = declared.iter().flatten().all(|advantage| *advantage == 0.0);
    }
    let mut metrics = measure::groups(&among.groups);
    let recorded = |estimator: &str, before: &[Vec<f64>], after: &[Vec<f64>], returns: &_| {
        let terms = (estimator == GROUP).then_some(&among.terms);
        let values = &said.values;
        let estimated = Estimated { estimator, terms, before, after, values, returns };
        record(plan, episodes, samples, &estimated)
    };
    let name =
        plan.algorithm.declared.advantage.as_ref().map(|declared| declared.chosen.name.as_str());
    let Some(critic) = &plan.algorithm.critic else {
        let unwhitened = || Advantages { values: among.terms.unwhitened.clone(), ..among.clone() };
        let before = declared.clone().unwrap_or_else(|| unwhitened().by_token(samples));
        if let Some(declared) = declared.as_mut().filter(|_| plan.algorithm.whiten) {
            whiten_tokens(declared);
        }
        let flat = among.groups.flat;
        let by_token = declared.unwrap_or_else(|| among.by_token(samples));
        let record = recorded(name.unwrap_or(GROUP), &before, &by_token, &[]);
        let batches = match flat {
            true => Vec::new(),
            false => batches(plan, episodes, samples, &by_token, step),
        };
        return Batches { metrics, batches, values: Vec::new(), flat, record };
    };
    let Valued { advantages, returns } = valued(episodes, samples, &said.values, critic);
    metrics.extend(measure::values(plan, samples, &said.values, &returns));
    let values = value_batches(plan, samples, &said.texts, &said.targets(&returns), step);
    let advantages = declared.unwrap_or(advantages);
    let record =
        recorded(name.unwrap_or("critic"), &advantages, &whitened(plan, &advantages), &returns);
    let batches = policy_batches(plan, episodes, samples, advantages, step);
    Batches { metrics, batches, values, flat: false, record }
}

/// Returns the advantages that policies are trained with, for their record.
pub(super) fn whitened(plan: &Plan, advantages: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut advantages = advantages.to_vec();
    if plan.algorithm.whiten {
        whiten_tokens(&mut advantages);
    }
    advantages
}

/// Builds the batches of policies from advantages `[N][T]` that come from values; empty while critics warm up.
pub(super) fn policy_batches(
    plan: &Plan,
    episodes: &[Episode],
    samples: &[Sample],
    mut advantages: Vec<Vec<f64>>,
    step: u64,
) -> Vec<(usize, Batch)> {
    if plan.algorithm.critic.as_ref().is_some_and(|critic| step < critic.warmup_steps) {
        return Vec::new();
    }
    if plan.algorithm.whiten {
        whiten_tokens(&mut advantages);
    }
    batches(plan, episodes, samples, &advantages, step)
}

/// Returns the episodes that are compared with each other, without the greedy ones that only serve as their baseline.
fn compared<'e>(plan: &Plan, episodes: &'e [Episode]) -> Cow<'e, [Episode]> {
    if !episodes.iter().any(|episode| is_greedy(plan, episode)) {
        return Cow::Borrowed(episodes);
    }
    episodes.iter().filter(|episode| !is_greedy(plan, episode)).cloned().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::testing::{episode, plan, turn};

    fn played(rewards: [f64; 2]) -> [Episode; 2] {
        let one = |index, reward| episode("p", index, reward, vec![turn("t/a", 0)]);
        [one(0, rewards[0]), one(1, rewards[1])]
    }

    fn taught(plan: &Plan, episodes: &[Episode]) -> (Metrics, Batches) {
        let (samples, metrics) =
            training_samples(plan, episodes, 0, &mut AlgorithmState::default()).unwrap();
        (metrics, make_batches(plan, episodes, &samples, &ValuePredictions::default(), 0))
    }

    #[test]
    fn a_flat_step_has_numbers_and_no_batch() {
        let plan = plan(&[("t/a", true)]);
        let (rollout, flat) = taught(&plan, &played([1.0, 1.0]));
        assert!(flat.batches.is_empty() && flat.flat);
        assert_eq!(rollout.get("rollout/episodes"), Some(2.0));
        assert_eq!(flat.metrics.get("group/zero_std_frac"), Some(1.0));
        assert_eq!(taught(&plan, &played([1.0, 0.0])).1.batches[0].1.rows.len(), 2);
    }

    #[test]
    fn a_step_without_a_turn_to_train_on_is_an_error() {
        let plan = plan(&[("t/a", false)]);
        let error = training_samples(&plan, &played([1.0, 0.0]), 4, &mut AlgorithmState::default());
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("step 5 has 2 scored episodes"), "{error}");
    }
}

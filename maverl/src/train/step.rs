//! One step of reinforcement learning; reads like the figure in `ARCHITECTURE.md`.

use std::borrow::Cow;
use std::time::Instant;

use crate::algo::loss::kl_reward;
use crate::algo::{
    Sample, advantages, baselines, batches, flat_tasks, is_greedy, row, samples, shaped_rewards,
};
use crate::config::{Baseline, KlIn};
use crate::metrics::{Metrics, rollout};
use crate::plan::{LossPlan, Plan};
use crate::runtime::Batch;
use crate::task::Task;
use crate::train::course::Stepped;
use crate::train::memory::{Memory, REWARD_KL};
use crate::train::team::{Cast, Team};
use crate::train::{TrainError, measure};
use crate::trajectory::{Episode, RewardOf, RewardPart};

/// The name of the reward part that the distance from the reference costs.
const KL: &str = "kl";

/// Does step `step`, from 0: the team plays the step's tasks, and every trained policy learns from its turns.
pub(super) async fn step(
    team: &Team<'_>,
    tasks: &[Task],
    step: u64,
    memory: &mut Memory,
) -> Result<Stepped, TrainError> {
    let (Cast { plan, rollout }, start) = (team.cast(step), Instant::now());
    let before = (measure::work(&team.policies), rollout.bills());
    let mut episodes = play(team, tasks, step).await?;
    let played = start.elapsed();
    charge_kl(team, plan, &mut episodes, memory).await?;
    let lesson = lesson(plan, &episodes, step, memory)?;
    let flat = lesson.batches.is_empty();
    let metrics = learn(team, plan, lesson, memory).await?;
    let mut timing = measure::timing(&episodes, played, start.elapsed());
    timing.extend(measure::engine(&team.policies, &before.0));
    timing.extend(measure::outsiders(&rollout.bills(), &before.1));
    Ok(Stepped { episodes, metrics, timing, flat, warnings: Vec::new() })
}

/// Plays the step's tasks, and, as often as the algorithm says, others in the place of those that teach nothing.
async fn play(team: &Team<'_>, tasks: &[Task], step: u64) -> Result<Vec<Episode>, TrainError> {
    let group = 0..team.plan.task.group_size.get();
    let Cast { plan, rollout } = team.cast(step);
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

/// Takes what turns cost by their distance from the reference off their rewards, where it counts there.
async fn charge_kl(
    team: &Team<'_>,
    plan: &Plan,
    episodes: &mut [Episode],
    memory: &Memory,
) -> Result<(), TrainError> {
    let samples = samples(episodes, plan);
    for (index, policy) in team.policies.iter().enumerate() {
        let loss = |sample: &Sample| &plan.seats[sample.seat].loss;
        let pays = |sample: &&Sample| sample.policy == index && in_reward(loss(sample));
        let charged: Vec<&Sample> = samples.iter().filter(pays).collect();
        if charged.is_empty() {
            continue;
        }
        let rows: Vec<_> = charged.iter().map(|sample| row(plan, episodes, sample, 0.0)).collect();
        let sampled: Vec<Vec<f32>> = rows.iter().map(|row| row.logprobs.clone()).collect();
        let reference = policy.reference(rows).await?;
        let scale = memory.kl_scale(policy.name());
        for ((sample, logp), reference) in charged.into_iter().zip(&sampled).zip(&reference) {
            let LossPlan { kl, kl_coef, .. } = *loss(sample);
            let value = kl_reward(kl, f64::from(kl_coef) * scale, logp, reference);
            let of = RewardOf::Turn(sample.turn);
            let part = RewardPart { name: KL.to_owned(), value, of };
            episodes[sample.episode].rewards.extend((value != 0.0).then_some(part));
        }
    }
    Ok(())
}

fn in_reward(loss: &LossPlan) -> bool {
    loss.kl_in == KlIn::Reward && loss.kl_coef > 0.0
}

/// Lets every trained policy learn, and what the algorithm remembers go on by it.
pub(super) async fn learn(
    team: &Team<'_>,
    plan: &Plan,
    lesson: Lesson,
    memory: &mut Memory,
) -> Result<Metrics, TrainError> {
    let Lesson { mut metrics, mut batches } = lesson;
    for (policy, batch) in &mut batches {
        let scale = memory.kl_scale(team.policies[*policy].name()) as f32;
        batch.rows.iter_mut().for_each(|row| row.loss.kl_coef *= scale);
    }
    metrics.extend(measure::update(team, batches).await?);
    let scales = memory.seek(plan, &metrics);
    metrics.extend(scales);
    Ok(metrics)
}

/// What the episodes of a step teach.
#[derive(Debug)]
pub(super) struct Lesson {
    /// The numbers of the episodes and of their groups.
    pub(super) metrics: Metrics,
    /// A batch for each trained policy; none where the step is flat.
    pub(super) batches: Vec<(usize, Batch)>,
}

/// What the episodes of step `step`, from 0, teach a team that remembers so much. Pure, so a stored step teaches the same
/// again.
pub(super) fn lesson(
    plan: &Plan,
    episodes: &[Episode],
    step: u64,
    memory: &mut Memory,
) -> Result<Lesson, TrainError> {
    let mut samples = samples(episodes, plan);
    shaped_rewards(episodes, &mut samples, &plan.algorithm);
    baselines(plan, episodes, &mut samples, &mut memory.averages);
    if samples.is_empty() {
        let scored = episodes.iter().filter(|episode| episode.score().is_some()).count();
        return Err(TrainError::NoSamples { step: step + 1, episodes: scored });
    }
    let mut metrics = rollout(&compared(plan, episodes));
    metrics.extend(reward_kl(plan, episodes, &samples, memory));
    if plan.algorithm.resample > 0 {
        let flat = flat_tasks(&compared(plan, episodes));
        metrics.set("group/dropped", flat.len() as f64);
        samples.retain(|sample| !flat.contains(&sample.task));
    }
    let advantages = advantages(episodes, &samples, &plan.algorithm);
    metrics.extend(measure::groups(&advantages.groups));
    let batches = match advantages.groups.flat {
        true => Vec::new(),
        false => batches(plan, episodes, &samples, &advantages.values, step),
    };
    Ok(Lesson { metrics, batches })
}

/// The episodes that are compared with each other: those played greedily only serve that.
fn compared<'e>(plan: &Plan, episodes: &'e [Episode]) -> Cow<'e, [Episode]> {
    if !episodes.iter().any(|episode| is_greedy(plan, episode)) {
        return Cow::Borrowed(episodes);
    }
    episodes.iter().filter(|episode| !is_greedy(plan, episode)).cloned().collect()
}

/// The mean over tokens of the KL that each policy's turns were charged.
fn reward_kl(plan: &Plan, episodes: &[Episode], samples: &[Sample], memory: &Memory) -> Metrics {
    let mut metrics = Metrics::default();
    for (index, policy) in plan.policies.iter().enumerate() {
        let (mut kl, mut tokens) = (0.0, 0);
        for sample in samples.iter().filter(|sample| sample.policy == index) {
            let loss = &plan.seats[sample.seat].loss;
            if !in_reward(loss) {
                continue;
            }
            let parts = episodes[sample.episode].rewards.iter();
            let mine = parts.filter(|p| p.name == KL && p.of == RewardOf::Turn(sample.turn));
            let paid: f64 = mine.map(|part| part.value).sum();
            kl -= paid / (f64::from(loss.kl_coef) * memory.kl_scale(&policy.name));
            tokens += sample.tokens;
        }
        if tokens > 0 {
            metrics.set(format!("policy/{}/{REWARD_KL}", policy.name), kl / tokens as f64);
        }
    }
    metrics
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

    #[test]
    fn a_flat_step_has_numbers_and_no_batch() {
        let plan = plan(&[("t/a", true)]);
        let lesson = |rewards| lesson(&plan, &played(rewards), 0, &mut Memory::default()).unwrap();
        let flat = lesson([1.0, 1.0]);
        assert!(flat.batches.is_empty());
        assert_eq!(flat.metrics.get("group/zero_std_frac"), Some(1.0));
        assert_eq!(lesson([1.0, 0.0]).batches[0].1.rows.len(), 2);
    }

    #[test]
    fn a_step_without_a_turn_to_train_on_is_an_error() {
        let plan = plan(&[("t/a", false)]);
        let error = lesson(&plan, &played([1.0, 0.0]), 4, &mut Memory::default());
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("step 5 has 2 scored episodes"), "{error}");
    }
}

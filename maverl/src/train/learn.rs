//! Training on the episodes of a step: critics predict values, and policies and critics are updated.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use maverl_kernels::sample::derive_seed as mixed;

use crate::algo::Sample;
use crate::algo::advantage::Compound;
use crate::config::UpdateOrder;
use crate::metrics::Metrics;
use crate::rng::SplitMix64;
use crate::run_dir::StepSamples;
use crate::runtime::{Batch, RuntimeError, ValueBatch};
use crate::train::record::{Estimated, record};
use crate::train::state::AlgorithmState;
use crate::train::step::{Batches, make_batches, policy_batches, training_samples, whitened};
use crate::train::team::Team;
use crate::train::{TrainError, critic, measure, mixer};
use crate::trajectory::Episode;

/// Salt of the seed of update orders.
const ORDER: u64 = 0x6f72_6465_7200;

/// Result of training on a step.
#[derive(Debug)]
pub(super) struct Updated {
    /// Metrics of the step's episodes, advantages and updates.
    pub(super) metrics: Metrics,
    /// True if there was nothing to learn from, and nothing was updated.
    pub(super) flat: bool,
    /// Samples with the terms of their advantages.
    pub(super) record: StepSamples,
}

/// Trains on the episodes of step `step`, counted from 0. Learning rates in `rates` override those of the plan.
pub(super) async fn learn(
    team: &Team<'_>,
    episodes: &[Episode],
    step: u64,
    rates: Option<&Metrics>,
    state: &mut AlgorithmState,
) -> Result<Updated, TrainError> {
    let plan = team.assignment(step).plan;
    let (samples, mut metrics) = training_samples(plan, episodes, step, state)?;
    let said = critic::predict(team, episodes, &samples).await?;
    let taught = match plan.mixed() {
        None => make_batches(plan, episodes, &samples, &said, step),
        Some(critic) => {
            let mixer::Mixed { advantages, metrics } =
                mixer::learn(team, critic, &samples, &said, step, rates).await?;
            let estimated = Estimated {
                estimator: "mixer",
                terms: None,
                before: &advantages,
                after: &whitened(plan, &advantages),
                values: &said.values,
                returns: &[],
            };
            let record = record(plan, episodes, &samples, &estimated);
            let batches = policy_batches(plan, episodes, &samples, advantages, step);
            Batches { metrics, batches, values: Vec::new(), flat: false, record }
        }
    };
    metrics.extend(taught.metrics);
    let Batches { mut batches, mut values, flat, mut record, .. } = taught;
    let rate = |kind: &str, policy: usize| {
        rates?.get(&format!("{kind}/{}/lr", team.policies[policy].name()))
    };
    for (policy, batch) in &mut batches {
        batch.lr = rate("policy", *policy).unwrap_or(batch.lr);
        let scale = state.kl_scale(team.policies[*policy].name()) as f32;
        batch.rows.iter_mut().for_each(|row| row.loss.kl_coef *= scale);
    }
    for (policy, batch) in &mut values {
        batch.lr = rate("critic", *policy).unwrap_or(batch.lr);
    }
    metrics.extend(match team.plan.algorithm.update_order {
        UpdateOrder::Together => update(team, batches, values).await?,
        order => {
            let (metrics, factors) =
                in_turn(team, &samples, batches, values, sequence(team, order, step)).await?;
            for (recorded, sample) in record.samples.iter_mut().zip(&samples) {
                recorded.factor = factors.get(&(sample.policy, sample.episode)).copied();
            }
            metrics
        }
    });
    let scales = state.seek(plan, &metrics);
    metrics.extend(scales);
    Ok(Updated { metrics, flat, record })
}

/// Updates each policy and each critic with its batch and returns the metrics. Policies on different workers are
/// updated concurrently. A critic that shares its policy's trunk is updated in the same optimizer steps.
pub(super) async fn update(
    team: &Team<'_>,
    batches: Vec<(usize, Batch)>,
    values: Vec<(usize, ValueBatch)>,
) -> Result<Metrics, TrainError> {
    let mut both: BTreeMap<usize, (Option<Batch>, Option<ValueBatch>)> = BTreeMap::new();
    for (policy, batch) in batches {
        both.entry(policy).or_default().0 = Some(batch);
    }
    for (policy, batch) in values {
        both.entry(policy).or_default().1 = Some(batch);
    }
    let updates =
        both.into_iter().map(|(policy, (batch, values))| one(team, policy, batch, values));
    let mut metrics = Metrics::default();
    for found in try_join_all(updates).await? {
        metrics.extend(found);
    }
    Ok(metrics)
}

/// Returns the order in which policies are updated in a step.
fn sequence(team: &Team<'_>, order: UpdateOrder, step: u64) -> Vec<usize> {
    let mut policies: Vec<usize> = (0..team.policies.len()).collect();
    if order == UpdateOrder::Random {
        SplitMix64::new(mixed(mixed(team.plan.seed, ORDER), step)).shuffle(&mut policies);
    }
    policies
}

/// Updates policies one after the other. The advantages of an episode are multiplied by the probability ratios of the
/// policies that were updated before. Critics are updated last. Returns the factors by policy and episode, too.
async fn in_turn(
    team: &Team<'_>,
    samples: &[Sample],
    batches: Vec<(usize, Batch)>,
    values: Vec<(usize, ValueBatch)>,
    sequence: Vec<usize>,
) -> Result<(Metrics, BTreeMap<(usize, usize), f64>), TrainError> {
    let algorithm = &team.plan.algorithm;
    let (mut metrics, mut factors) = (Metrics::default(), BTreeMap::new());
    let mut compound = Compound::new(algorithm.happo.factor, algorithm.happo.clip);
    let mut batches: BTreeMap<usize, Batch> = batches.into_iter().collect();
    let mut values: BTreeMap<usize, ValueBatch> = values.into_iter().collect();
    for policy in sequence {
        let Some(mut batch) = batches.remove(&policy) else { continue };
        let its = samples.iter().filter(|sample| sample.policy == policy);
        let episodes: Vec<usize> = its.map(|sample| sample.episode).collect();
        metrics.extend(measure::factors(team.policies[policy].name(), &compound, &episodes));
        for (row, &episode) in batch.rows.iter_mut().zip(&episodes) {
            factors.insert((policy, episode), compound.of(episode));
            let factor = compound.of(episode) as f32;
            row.advantages.iter_mut().for_each(|advantage| *advantage *= factor);
        }
        let rows = batch.rows.clone();
        let shared = if team.plan.shares_trunk() { values.remove(&policy) } else { None };
        metrics.extend(one(team, policy, Some(batch), shared).await?);
        let now = team.policies[policy].logprobs(rows.clone()).await?;
        for ((row, now), &episode) in rows.iter().zip(&now).zip(&episodes) {
            compound.take(episode, &row.logprobs, now);
        }
    }
    metrics.extend(update(team, Vec::new(), values.into_iter().collect()).await?);
    Ok((metrics, factors))
}

/// Updates a policy and its critic.
async fn one(
    team: &Team<'_>,
    policy: usize,
    batch: Option<Batch>,
    values: Option<ValueBatch>,
) -> Result<Metrics, RuntimeError> {
    let policy = &team.policies[policy];
    let mut metrics = Metrics::default();
    if let Some(batch) = &batch {
        metrics.extend(measure::batch(policy.name(), batch));
    }
    let lr = values.as_ref().map_or(0.0, |values| values.lr);
    let (updated, valued) = match (batch, values) {
        (Some(batch), Some(values)) if team.plan.shares_trunk() => {
            let (updated, valued) = policy.update_with_values(batch, values).await?;
            (Some(updated), Some(valued))
        }
        (batch, values) => {
            let valued = match values {
                Some(values) => Some(policy.update_critic(values).await?),
                None => None,
            };
            let updated = match batch {
                Some(batch) => Some(policy.update(batch).await?),
                None => None,
            };
            (updated, valued)
        }
    };
    if let Some(stats) = updated {
        metrics.extend(measure::update(policy.name(), &stats));
    }
    if let Some(stats) = valued {
        metrics.extend(measure::critic(policy.name(), lr, &stats));
    }
    Ok(metrics)
}

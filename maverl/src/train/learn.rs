//! Learning from the episodes of a step: critics say what they expected, and policies and critics are updated.

use std::collections::BTreeMap;

use futures::future::try_join_all;

use crate::metrics::Metrics;
use crate::runtime::{Batch, RuntimeError, ValueBatch};
use crate::train::step::{Lesson, drawn, lesson};
use crate::train::team::Team;
use crate::train::{TrainError, critic, measure};
use crate::trajectory::Episode;

/// What was learned.
#[derive(Debug)]
pub(super) struct Learned {
    /// The numbers of the step's episodes, lessons and updates.
    pub(super) metrics: Metrics,
    /// There was nothing to learn from, and nothing was updated.
    pub(super) flat: bool,
}

/// Learns from the episodes of step `step`, from 0, with the step sizes that `rates` has, where it has any.
pub(super) async fn learn(
    team: &Team<'_>,
    episodes: &[Episode],
    step: u64,
    rates: Option<&Metrics>,
) -> Result<Learned, TrainError> {
    let (samples, mut metrics) = drawn(team.plan, episodes, step)?;
    let said = critic::said(team, episodes, &samples).await?;
    let taught = lesson(team.plan, episodes, &samples, &said, step);
    metrics.extend(taught.metrics);
    let Lesson { mut batches, mut values, flat, .. } = taught;
    let rate = |kind: &str, policy: usize| {
        rates?.get(&format!("{kind}/{}/lr", team.policies[policy].name()))
    };
    for (policy, batch) in &mut batches {
        batch.lr = rate("policy", *policy).unwrap_or(batch.lr);
    }
    for (policy, batch) in &mut values {
        batch.lr = rate("critic", *policy).unwrap_or(batch.lr);
    }
    metrics.extend(update(team, batches, values).await?);
    Ok(Learned { metrics, flat })
}

/// Updates each policy and each critic with its batch, at once where they do not share a worker, and measures what that
/// did. A critic on its policy's trunk is updated in the same optimizer steps.
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

/// Updates a policy and the critic beside it.
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

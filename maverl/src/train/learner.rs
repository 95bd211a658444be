//! The learner: policies with their critics and mixer, and the state of the algorithm. It plays no episode.
//! HAPPO multiplies advantages of a batch by a factor during the update (`update_in_turn`).

pub(super) mod batches;
pub(super) mod critic;
pub(super) mod estimator;
mod hints;
pub(super) mod kl_penalty;
pub(super) mod live;
pub(super) mod mixer;
mod norms;
mod replayed;
mod saved;
pub(super) mod state;
mod teachers;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use futures::future::try_join_all;
use maverl_kernels::sample::derive_seed;

use crate::IntoMap;
use crate::algo::advantage::Compound;
use crate::algo::{Sample, observed};
use crate::config::{AdvantagePlan, UpdateOrder};
use crate::credit::Estimators;
use crate::data::SolveRates;
use crate::metrics::Metrics;
use crate::plan::Plan;
use crate::rng::SplitMix64;
use crate::run_dir::StepSamples;
use crate::runtime::{
    Batch, Policy, Request, Row, RuntimeError, Sampling, TokenColumns, ValueBatch,
};
use crate::train::error::TrainError;
use crate::train::learner::batches::{Batches, Samples, StepAdvantages, StepPlan};
use crate::train::learner::critic::ValuePredictions;
use crate::train::learner::mixer::TeamMixer;
use crate::train::learner::state::{AlgorithmState, VerifierRecord};
use crate::train::ranks::{RankPeers, join_all};
use crate::train::record::measure;
use crate::train::record::spans::Span;
use crate::trajectory::Episode;

/// Salt of the seed of update orders.
const ORDER: u64 = 0x6f72_6465_7200;
/// Salt of the seeds of opponents' replies.
const OPPONENT: u64 = 0x6f70_706f_6e65_6e74;

/// Everything that training changes.
pub(super) struct Learner {
    /// Policies in the plan's order, each with its critic.
    policies: Vec<Policy>,
    /// State of the algorithm.
    pub(super) state: AlgorithmState,
    /// Mixer of the agents' values; none before its first use.
    mixer: Option<TeamMixer>,
    /// State of a verifier beside its weights; none before its first evaluation.
    pub(super) verifier: Option<VerifierRecord>,
    /// Directory of the run whose episodes are read again; none before it is opened.
    recorded: Option<PathBuf>,
    /// Place where advantages are computed.
    estimators: Estimators,
    /// Start of the computation of a step's advantages.
    began: Option<Instant>,
    /// Ranks that learn together.
    peers: RankPeers,
}

/// Result of updates.
#[derive(Default)]
pub(super) struct Updated {
    /// Metrics of the updates.
    pub(super) metrics: Metrics,
    /// Quantities of the tokens of each policy's batch, if they are recorded, by the index of the policy.
    pub(super) columns: BTreeMap<usize, TokenColumns>,
    /// Times of the parts of the step that the updates end.
    pub(super) spans: Vec<Span>,
}

impl Updated {
    fn extend(&mut self, other: Self) {
        self.metrics.extend(other.metrics);
        self.columns.extend(other.columns);
        self.spans.extend(other.spans);
    }
}

impl Learner {
    /// Returns the learner of policies as they were loaded.
    pub(super) fn new(policies: &[Policy], peers: RankPeers, estimators: Estimators) -> Self {
        Self {
            estimators,
            policies: policies.to_vec(),
            state: AlgorithmState::default(),
            mixer: None,
            verifier: None,
            recorded: None,
            began: None,
            peers,
        }
    }

    /// Returns the policies in the plan's order.
    pub(super) fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Prepares for a step: renews the reference of each policy if this is due.
    pub(super) async fn begin(&self, at: &StepPlan<'_>) -> Result<(), TrainError> {
        if at.plan.algorithm.reference.is_due(at.step) {
            let policies = self.policies.iter().zip(&at.plan.policies);
            let renewed = policies.filter(|(_, plan)| plan.reference);
            let mix = at.plan.algorithm.reference.mix;
            if mix < 1.0 {
                try_join_all(renewed.map(|(policy, _)| policy.mix_reference(mix))).await?;
            } else {
                try_join_all(renewed.map(|(policy, _)| policy.renew_reference())).await?;
            }
        }
        Ok(())
    }

    /// Adds the KL penalty to the rewards of turns. Returns true if any policy has it in its reward.
    pub(super) async fn penalize_kl(
        &mut self,
        plan: &Plan,
        episodes: &mut [Episode],
    ) -> Result<bool, TrainError> {
        self.began = Some(Instant::now());
        Ok(kl_penalty::apply(plan, &self.policies, episodes, &self.state).await?)
    }

    /// Returns the solve rates of the tasks that were played.
    pub(super) fn solve_rates(&self) -> &SolveRates {
        &self.state.solve_rates
    }

    /// Returns the samples of a step that are trained on, and updates the moving averages.
    pub(super) fn samples(
        &mut self,
        at: &StepPlan<'_>,
        episodes: &[Episode],
    ) -> Result<Samples, TrainError> {
        self.began.get_or_insert_with(Instant::now);
        let samples = batches::samples(at, episodes, &mut self.state, &self.estimators);
        estimator::device_error(&self.estimators)?;
        samples
    }

    /// Predicts the values of samples, and the norms of gradients that a token baseline weighs them by; nothing without either.
    pub(super) async fn predict(
        &self,
        plan: &Plan,
        episodes: &[Episode],
        samples: &[Sample],
    ) -> Result<ValuePredictions, TrainError> {
        let mut predicted = critic::predict(plan, &self.policies, episodes, samples).await?;
        if matches!(plan.algorithm.advantage, AdvantagePlan::TokenBaseline(_)) {
            predicted.norms =
                norms::gradient_norms(plan, &self.policies, episodes, samples).await?;
        }
        Ok(predicted)
    }

    /// Computes the advantages of samples. A mixer, which gives each agent its share, is updated with its critics.
    pub(super) async fn advantages(
        &mut self,
        at: &StepPlan<'_>,
        episodes: &[Episode],
        samples: &[Sample],
        predicted: &ValuePredictions,
    ) -> Result<StepAdvantages, TrainError> {
        let estimators = &self.estimators;
        let on = (estimators, self.state.rewards.least_divisor());
        let mut advantages = match at.plan.mixer_plan() {
            None if at.plan.algorithm.preset.compares_pairs() => {
                batches::pairs(at.plan, episodes, samples, estimators)
            }
            None => batches::advantages(at.plan, episodes, samples, predicted, on),
            Some(mixed) => {
                let rows = (mixed, samples);
                let mixer = &mut self.mixer;
                let mixed = mixer::learn(at, &self.policies, mixer, rows, predicted).await?;
                batches::mixed_advantages(at.plan, episodes, samples, predicted, mixed, on)
            }
        };
        estimator::device_error(estimators)?;
        let rows = (episodes, samples);
        teachers::teach(at.plan, &self.policies, rows, &mut advantages).await?;
        self.replay_groups(at, samples, &mut advantages).await?;
        advantages.observed = observed(at.plan, episodes, samples, |policy, id| {
            self.policies[policy].tokenizer().token_bytes(id)
        });
        Ok(advantages)
    }

    /// Updates policies and critics with the batches of a step. The factors of policies that are updated in turn are
    /// added to `record`.
    pub(super) async fn update(
        &mut self,
        at: &StepPlan<'_>,
        samples: &[Sample],
        Batches { mut policies, mut critics }: Batches,
        record: &mut StepSamples,
    ) -> Result<Updated, TrainError> {
        let computed = self.began.take().map(|began| Span::since("advantages", began));
        let updating = Instant::now();
        for (policy, batch) in &mut policies {
            let name = self.policies[*policy].name();
            batch.lr = at.rate("policy", name).unwrap_or(batch.lr);
            let scale = self.state.kl_scale(name) as f32;
            batch.rows.iter_mut().for_each(|row| row.loss.kl_coef *= scale);
            if let Some([applied, _]) = self.state.entropy_coefs(at.plan, *policy) {
                batch.rows.iter_mut().for_each(|row| row.loss.entropy_coef = applied as f32);
            }
        }
        for (policy, batch) in &mut critics {
            batch.lr = at.rate("critic", self.policies[*policy].name()).unwrap_or(batch.lr);
        }
        let mut updated = match at.plan.algorithm.update_order.sequence() {
            None => self.update_together(at.plan, policies, critics).await?,
            Some(settings) => {
                let order = self.sequence(at.plan, at.step);
                let compound = Compound::new(settings);
                let rows = (samples, record);
                self.update_in_turn(at.plan, rows, policies, critics, (order, compound)).await?
            }
        };
        let found = self.state.seek(at.plan, &updated.metrics);
        updated.metrics.extend(found);
        let found = self.state.seek_entropy(at.plan, &updated.metrics);
        updated.metrics.extend(found);
        updated.spans.extend(computed);
        updated.spans.push(Span::since("update", updating));
        Ok(updated)
    }

    /// Returns the replies of a policy's opponent to the prompts of a step. At the start of an iteration, when the policy
    /// is its own opponent, those of all steps of the iteration are generated. `prompts` returns the prompts of a step.
    ///
    /// Replies are state of the algorithm: an iteration that is resumed has the same opponent.
    pub(super) async fn opponent(
        &mut self,
        at: &StepPlan<'_>,
        policy: usize,
        sampling: &Arc<Sampling>,
        prompts: impl Fn(u64) -> Result<Vec<Vec<u32>>, TrainError>,
    ) -> Result<Vec<Vec<u32>>, TrainError> {
        let every = at.plan.algorithm.reference.every.max(1);
        let opponent = &self.policies[policy];
        let stored = self.state.opponents.entry(opponent.name().to_owned()).or_default();
        if at.step.is_multiple_of(every) {
            stored.clear();
            for step in at.step..at.step.saturating_add(every) {
                let seed = derive_seed(derive_seed(at.plan.config.seed, OPPONENT), step);
                let prompts = prompts(step)?.into_iter().enumerate();
                let dealt = prompts.filter(|(i, _)| i % self.peers.size() == self.peers.rank());
                let replies = dealt.map(|(i, prompt)| {
                    let (sampling, seed) = (Arc::clone(sampling), derive_seed(seed, i as u64));
                    let request = Request::new(prompt, sampling, seed);
                    async move { opponent.generate(request).await.map(|reply| (i, reply.ids)) }
                });
                let replies = try_join_all(replies).await?;
                stored.insert(step, self.peers.replies(replies).await?);
            }
        }
        Ok(stored.remove(&at.step).unwrap_or_default())
    }

    /// Updates each policy and each critic with its batch. Policies on different workers are
    /// updated concurrently. A critic that shares its policy's trunk is updated in the same optimizer steps.
    pub(super) async fn update_together(
        &self,
        plan: &Plan,
        policies: Vec<(usize, Batch)>,
        critics: Vec<(usize, ValueBatch)>,
    ) -> Result<Updated, TrainError> {
        let mut both: BTreeMap<usize, (Option<Batch>, Option<ValueBatch>)> = BTreeMap::new();
        for (policy, batch) in policies {
            both.entry(policy).or_default().0 = Some(batch);
        }
        for (policy, batch) in critics {
            both.entry(policy).or_default().1 = Some(batch);
        }
        let updates = both.into_iter().map(|(policy, (batch, values))| {
            update_policy((policy, &self.policies[policy]), plan.shares_trunk(), batch, values)
        });
        let mut updated = Updated::default();
        for found in join_all(&self.policies, updates).await? {
            updated.extend(found);
        }
        Ok(updated)
    }

    /// Returns the order in which policies are updated in a step.
    fn sequence(&self, plan: &Plan, step: u64) -> Vec<usize> {
        let mut policies: Vec<usize> = (0..self.policies.len()).collect();
        if matches!(plan.algorithm.update_order, UpdateOrder::Random(_)) {
            let seed = derive_seed(derive_seed(plan.config.seed, ORDER), step);
            SplitMix64::new(seed).shuffle(&mut policies);
        }
        policies
    }

    /// Updates policies one after the other. The advantages of an episode are multiplied by the probability ratios of
    /// the policies that were updated before. Critics are updated last.
    async fn update_in_turn(
        &self,
        plan: &Plan,
        (samples, record): (&[Sample], &mut StepSamples),
        batches: Vec<(usize, Batch)>,
        values: Vec<(usize, ValueBatch)>,
        (sequence, mut compound): (Vec<usize>, Compound),
    ) -> Result<Updated, TrainError> {
        let mut updated = Updated::default();
        let mut batches: BTreeMap<usize, Batch> = batches.into_iter().into_map();
        let mut values: BTreeMap<usize, ValueBatch> = values.into_iter().into_map();
        for index in sequence {
            let Some(mut batch) = batches.remove(&index) else { continue };
            let policy = &self.policies[index];
            let its = samples.iter().filter(|sample| sample.policy == index);
            let episodes: Vec<usize> = its.map(|sample| sample.episode).collect();
            updated.metrics.extend(measure::factors(policy.name(), &compound, &episodes));
            for (row, &episode) in batch.rows.iter_mut().zip(&episodes) {
                let factor = compound.of(episode) as f32;
                row.advantages.iter_mut().for_each(|advantage| *advantage *= factor);
            }
            let recorded = record.samples.iter_mut().zip(samples);
            for (recorded, sample) in recorded.filter(|(_, sample)| sample.policy == index) {
                recorded.factor = Some(compound.of(sample.episode));
            }
            // Rows of observations, which follow those of samples, have no factor.
            let rows = batch.rows[..episodes.len()].to_vec();
            let corrected = rows.iter().any(|row| row.loss.is_corrected());
            let before = if corrected { policy.logprobs(rows.clone()).await? } else { Vec::new() };
            let shared = if plan.shares_trunk() { values.remove(&index) } else { None };
            let of = (index, policy);
            updated.extend(update_policy(of, plan.shares_trunk(), Some(batch), shared).await?);
            let now = policy.logprobs(rows.clone()).await?;
            for (at, row) in rows.iter().enumerate() {
                compound.take(episodes[at], old_logprobs(row, before.get(at)), &now[at]);
            }
        }
        let values = values.into_iter().collect();
        updated.extend(self.update_together(plan, Vec::new(), values).await?);
        Ok(updated)
    }
}

/// Returns the log-probs of a row before the update, which its factor is relative to: those of the `trainer` if a correction takes
/// the distance of the sampler out of the update, else those of the sampler.
fn old_logprobs<'r>(row: &'r Row, trainer: Option<&'r Vec<f32>>) -> &'r [f32] {
    trainer.filter(|_| row.loss.is_corrected()).unwrap_or(&row.logprobs)
}

/// Updates a policy and its critic.
async fn update_policy(
    (index, policy): (usize, &Policy),
    shares_trunk: bool,
    batch: Option<Batch>,
    values: Option<ValueBatch>,
) -> Result<Updated, RuntimeError> {
    let (mut metrics, mut columns) = (Metrics::default(), BTreeMap::new());
    let began = Instant::now();
    if let Some(batch) = &batch {
        metrics.extend(measure::batch(policy.name(), batch));
    }
    let lr = values.as_ref().map_or(0.0, |values| values.lr);
    let (updated, valued) = match (batch, values) {
        (Some(batch), Some(values)) if shares_trunk => {
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
        columns.extend(stats.columns.map(|found| (index, found)));
    }
    if let Some(stats) = valued {
        metrics.extend(measure::critic(policy.name(), lr, &stats));
    }
    let spans = vec![Span::since("update", began).of_policy(policy.name())];
    Ok(Updated { metrics, columns, spans })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Correction, SequencePlan};
    use crate::loss::TruncateOptions;

    #[test]
    fn with_a_correction_a_factor_contains_the_update_and_not_the_distance_of_the_sampler() {
        let (mut row, trainer, now) = (Row::default(), vec![-1.5], [-1.25]);
        row.logprobs = vec![-1.0];
        for (correction, change) in
            [(Correction::None, -0.25), (Correction::Truncate(TruncateOptions::default()), 0.25)]
        {
            row.loss.correction = vec![correction];
            let mut compound = Compound::new(SequencePlan::default());
            compound.take(0, old_logprobs(&row, Some(&trainer)), &now);
            assert!((compound.of(0) - libm::exp(change)).abs() < 1e-12);
        }
    }
}

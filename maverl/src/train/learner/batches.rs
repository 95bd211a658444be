//! From the episodes of a step to its batches: samples, advantages, batches. Only moving averages are
//! state, so a stored step gives the same batches again.

use std::borrow::Cow;

use crate::algo::advantage::{
    ReplyPair, Valued, apply_future_rewards, is_whitened, labeled_replies, limit_whitened,
    pairs_of_step, rewarded_step, token_advantages, valued_advantages, whiten_tokens,
};
use crate::algo::{
    self, Observed, ReplayedGroups, Sample, ValueTarget, add_observations, add_teachers,
    average_plays, baselines, declared_advantages, equal_rewards, flat_tasks, is_greedy,
    pair_batches, shaped_rewards, value_batches, with_replayed,
};
use crate::config::AdvantagePlan;
use crate::credit::{Estimators, GroupBy};
use crate::metrics::{Metrics, rollout};
use crate::plan::{AlgorithmPlan, Plan};
use crate::run_dir::StepSamples;
use crate::runtime::{Batch, TeacherTokens, ValueBatch};
use crate::train::error::TrainError;
use crate::train::learner::critic::ValuePredictions;
use crate::train::learner::kl_penalty;
use crate::train::learner::state::AlgorithmState;
use crate::train::record::measure;
use crate::train::record::{Estimated, branches, record};
use crate::train::step::unscored::none_scored;
use crate::trajectory::Episode;

/// A step: its number, and the plan that assigns policies to seats in it.
#[derive(Clone, Copy)]
pub(crate) struct StepPlan<'p> {
    pub(crate) plan: &'p Plan,
    /// Number of the step, from 0.
    pub(crate) step: u64,
    /// Metrics of the stored step, whose learning rates override those of the plan.
    pub(crate) rates: Option<&'p Metrics>,
}

impl StepPlan<'_> {
    /// Returns the stored learning rate of a policy or a critic.
    pub(crate) fn rate(&self, kind: &str, policy: &str) -> Option<f64> {
        self.rates?.get(&format!("{kind}/{policy}/lr"))
    }
}

/// Samples of a step.
#[derive(Debug)]
pub(crate) struct Samples {
    /// Turns that are trained on.
    pub(crate) rows: Vec<Sample>,
    /// Metrics of the episodes.
    pub(crate) metrics: Metrics,
}

/// Advantages of the samples of a step.
#[derive(Debug, Default)]
pub(crate) struct StepAdvantages {
    /// Advantage of each token of each sample. `[N][T]`
    pub(crate) tokens: Vec<Vec<f64>>,
    /// Distributions of the teacher of each sample `[N]`; empty unless their divergence is in the loss.
    pub(crate) taught: Vec<Option<TeacherTokens>>,
    /// Groups of earlier steps that are trained on in place of flat ones.
    pub(crate) replayed: ReplayedGroups,
    /// Texts of the environment in the prompts of samples, whose likelihood is in the loss.
    pub(crate) observed: Vec<Observed>,
    /// Pairs of replies, if the algorithm compares pairs.
    pub(crate) pairs: Vec<ReplyPair>,
    /// Targets of the critics' values `[N]`; empty without critics, and where a mixer has trained them.
    pub(crate) targets: Vec<ValueTarget>,
    /// Metrics of the groups and values.
    pub(crate) metrics: Metrics,
    /// True if there is nothing to learn from.
    pub(crate) flat: bool,
    /// Samples with the terms of their advantages.
    pub(crate) record: StepSamples,
}

/// Batches of a step.
#[derive(Debug)]
pub(crate) struct Batches {
    /// One batch per trained policy; empty if the step is flat.
    pub(crate) policies: Vec<(usize, Batch)>,
    /// One batch per critic, by the index of the policy that hosts it.
    pub(crate) critics: Vec<(usize, ValueBatch)>,
}

/// Returns the samples of a step that are trained on. Updates the averages and the spread of rewards of `state`.
pub(crate) fn samples(
    StepPlan { plan, step, .. }: &StepPlan<'_>,
    episodes: &[Episode],
    state: &mut AlgorithmState,
    estimators: &Estimators,
) -> Result<Samples, TrainError> {
    let mut rows = algo::samples(episodes, plan);
    average_plays(plan, episodes, &mut rows);
    shaped_rewards(episodes, &mut rows, &plan.algorithm);
    baselines(plan, episodes, &mut rows, &mut state.averages, estimators);
    if rows.is_empty() {
        let scored = episodes.iter().filter(|episode| episode.score().is_some()).count();
        if scored == 0 && !episodes.is_empty() {
            return Err(none_scored(episodes, format!("of step {}", step + 1)));
        }
        return Err(TrainError::NoSamples { step: step + 1, episodes: scored });
    }
    let mut metrics = rollout(&compared_episodes(plan, episodes));
    metrics.extend(kl_penalty::metrics(plan, episodes, &rows, state));
    metrics.extend(learn_solve_rates(plan, episodes, state));
    metrics.extend(branches(plan, episodes));
    if plan.algorithm.resample > 0 {
        let flat = flat_tasks(&compared_episodes(plan, episodes));
        metrics.set("group/dropped", flat.len() as f64);
        rows.retain(|sample| !flat.contains(&sample.task));
    }
    apply_future_rewards(episodes, &mut rows, &plan.algorithm);
    if plan.algorithm.whiten {
        state.rewards.add(rows.iter().map(|sample| sample.reward));
    }
    Ok(Samples { rows, metrics })
}

/// Adds the episodes of a step to the solve rates of a curriculum, and returns the number of played tasks in each of its pools.
fn learn_solve_rates(plan: &Plan, episodes: &[Episode], state: &mut AlgorithmState) -> Metrics {
    let (curriculum, mut metrics) = (&plan.config.task.curriculum, Metrics::default());
    if !curriculum.is_used() {
        return metrics;
    }
    state.solve_rates.add(curriculum.memory, &*compared_episodes(plan, episodes));
    for (pool, size) in state.solve_rates.pool_sizes(curriculum).into_iter().enumerate() {
        metrics.set(format!("curriculum/{}", pool + 1), size as f64);
    }
    metrics
}

/// Computes the advantages of single tokens: those of a token baseline or of a declared estimator.
fn advantages_of_tokens(
    algorithm: &AlgorithmPlan,
    episodes: &[Episode],
    samples: &[Sample],
    predicted: &ValuePredictions,
    estimators: &Estimators,
) -> Option<Vec<Vec<f64>>> {
    match &algorithm.advantage {
        AdvantagePlan::TokenBaseline(baseline) => {
            Some(token_advantages(baseline, episodes, samples, &predicted.norms, estimators))
        }
        _ => declared_advantages(episodes, samples, &predicted.values, algorithm, estimators),
    }
}

/// Computes the advantages of samples from their rewards, and from predicted values if there are critics. `least` is the
/// least divisor of whitening.
pub(crate) fn advantages(
    plan: &Plan,
    episodes: &[Episode],
    samples: &[Sample],
    predicted: &ValuePredictions,
    (estimators, least): (&Estimators, f64),
) -> StepAdvantages {
    let algorithm = &plan.algorithm;
    let equal = equal_rewards(episodes, samples, algorithm);
    let mut among = algo::advantages(episodes, samples, algorithm, estimators);
    let declared = advantages_of_tokens(algorithm, episodes, samples, predicted, estimators);
    if let Some(declared) = &declared {
        among.groups.flat = declared.iter().flatten().all(|advantage| *advantage == 0.0);
    }
    let mut metrics = measure::groups(&among.groups);
    let estimator = algorithm.advantage.name();
    let Some(critic) = &algorithm.critic else {
        let flat = equal || among.groups.flat;
        let compared = declared.is_none();
        let (before, mut tokens) = match declared {
            Some(declared) => {
                (declared.clone(), whiten_advantages(plan, samples, declared, estimators))
            }
            None => (before_whitening(&among).by_token(samples), among.by_token(samples)),
        };
        let least_divisor = limit_advantages(plan, samples, &before, &mut tokens, least);
        let estimated = Estimated {
            least_divisor,
            estimator: if compared { "group" } else { estimator },
            terms: compared.then_some(&among.terms),
            before: &before,
            after: &tokens,
            values: &[],
            returns: &[],
            estimators,
        };
        let record = record(plan, episodes, samples, &estimated);
        return StepAdvantages { tokens, metrics, flat, record, ..StepAdvantages::default() };
    };
    let step = rewarded_step(episodes, samples, Some(&predicted.values), GroupBy::TaskSeat);
    let Valued { advantages, returns } = valued_advantages(&step.view_on(estimators), critic);
    metrics.extend(measure::values(plan, samples, &predicted.values, &returns));
    let before = declared.unwrap_or(advantages);
    let mut tokens = whiten_advantages(plan, samples, before.clone(), estimators);
    let least_divisor = limit_advantages(plan, samples, &before, &mut tokens, least);
    let estimated = Estimated {
        least_divisor,
        estimator,
        terms: None,
        before: &before,
        after: &tokens,
        values: &predicted.values,
        returns: &returns,
        estimators,
    };
    let record = record(plan, episodes, samples, &estimated);
    let (targets, flat) = (predicted.targets(&returns), equal);
    StepAdvantages { tokens, targets, metrics, flat, record, ..StepAdvantages::default() }
}

/// Returns the advantages of samples from those that a mixer computed. The mixer has trained the critics.
pub(crate) fn mixed_advantages(
    plan: &Plan,
    episodes: &[Episode],
    samples: &[Sample],
    predicted: &ValuePredictions,
    (mut before, metrics): (Vec<Vec<f64>>, Metrics),
    (estimators, least): (&Estimators, f64),
) -> StepAdvantages {
    before.iter_mut().for_each(|advantages| estimators.round(advantages));
    let mut tokens = whiten_advantages(plan, samples, before.clone(), estimators);
    let least_divisor = limit_advantages(plan, samples, &before, &mut tokens, least);
    let flat = equal_rewards(episodes, samples, &plan.algorithm);
    let estimated = Estimated {
        least_divisor,
        estimator: "mixer",
        terms: None,
        before: &before,
        after: &tokens,
        values: &predicted.values,
        returns: &[],
        estimators,
    };
    let record = record(plan, episodes, samples, &estimated);
    StepAdvantages { tokens, metrics, flat, record, ..StepAdvantages::default() }
}

/// Returns the pairs of replies of a step, or its replies with labels. The advantage of a sample is 1 in a better or good reply, -1
/// in a worse or bad one, else 0.
pub(crate) fn pairs(
    plan: &Plan,
    episodes: &[Episode],
    samples: &[Sample],
    estimators: &Estimators,
) -> StepAdvantages {
    let preference = &plan.algorithm.preference;
    let labels = preference.loss.labels_replies();
    let found = if labels {
        labeled_replies(samples, preference.threshold, estimators)
    } else {
        pairs_of_step(samples, estimators)
    };
    let signs = found.signs().into_iter().zip(samples);
    let tokens: Vec<Vec<f64>> = signs.map(|(sign, sample)| vec![sign; sample.tokens]).collect();
    let estimated = Estimated {
        least_divisor: None,
        estimator: if labels { "label" } else { "pair" },
        terms: Some(&found.terms),
        before: &tokens,
        after: &tokens,
        values: &[],
        returns: &[],
        estimators,
    };
    let record = record(plan, episodes, samples, &estimated);
    let (metrics, flat) = (measure::groups(&found.groups), found.groups.flat);
    StepAdvantages {
        tokens,
        pairs: found.pairs,
        metrics,
        flat,
        record,
        ..StepAdvantages::default()
    }
}

/// Returns advantages relative to groups as they were before whitening.
fn before_whitening(among: &algo::Advantages) -> algo::Advantages {
    algo::Advantages { values: among.terms.unwhitened.clone(), ..among.clone() }
}

/// Whitens the advantages of a step if the algorithm does.
fn whiten_advantages(
    plan: &Plan,
    samples: &[Sample],
    mut advantages: Vec<Vec<f64>>,
    estimators: &Estimators,
) -> Vec<Vec<f64>> {
    if is_whitened(&plan.algorithm, samples) {
        whiten_tokens(&mut advantages, estimators);
    }
    advantages
}

/// Reduces whitened advantages to those of the least divisor, which is a share of the rewards' deviation, if they have the unit
/// of rewards. Returns it if it is the divisor.
fn limit_advantages(
    plan: &Plan,
    samples: &[Sample],
    before: &[Vec<f64>],
    tokens: &mut [Vec<f64>],
    least: f64,
) -> Option<f64> {
    let algorithm = &plan.algorithm;
    let limits = is_whitened(algorithm, samples) && algorithm.advantage.has_reward_unit();
    if limits { limit_whitened(before, tokens, least) } else { None }
}

/// Builds the batches of a step. Policies have none while their critics warm up, and if the step is flat. In a flat step, critics
/// on the trunks of policies have none either, as their updates move the policies.
pub(crate) fn batches(
    at: &StepPlan<'_>,
    episodes: &[Episode],
    samples: &[Sample],
    advantages: &StepAdvantages,
    predicted: &ValuePredictions,
) -> Batches {
    let StepPlan { plan, step, .. } = *at;
    let critic = plan.algorithm.critic.as_ref();
    let warming_up = critic.is_some_and(|critic| step < critic.warmup_steps);
    let policies = if advantages.flat || warming_up {
        Vec::new()
    } else if plan.algorithm.preset.compares_pairs() {
        pair_batches(plan, episodes, samples, &advantages.pairs, step)
    } else {
        let StepAdvantages { tokens, replayed, .. } = advantages;
        let mut found = with_replayed(plan, (episodes, samples), tokens, replayed, step);
        add_teachers(plan, samples, &advantages.taught, &mut found);
        add_observations(plan, (episodes, samples), &advantages.observed, &mut found);
        found
    };
    let moves_flat_policies = advantages.flat && plan.shares_trunk();
    let critics = if advantages.targets.is_empty() || moves_flat_policies {
        Vec::new()
    } else {
        value_batches(plan, samples, &predicted.texts, &advantages.targets, step)
    };
    Batches { policies, critics }
}

/// Returns the episodes that are compared with each other, without the greedy ones and the branches that only serve as their
/// baseline.
fn compared_episodes<'e>(plan: &Plan, episodes: &'e [Episode]) -> Cow<'e, [Episode]> {
    let is_compared = |episode: &&Episode| !is_greedy(plan, episode) && episode.branch.is_none();
    if episodes.iter().all(|episode| is_compared(&episode)) {
        return Cow::Borrowed(episodes);
    }
    episodes.iter().filter(is_compared).cloned().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::num::NonZeroU32;
    use std::sync::Arc;

    use super::*;
    use crate::algo::testing::{assert_close, episode, plan, turn};
    use crate::config::{
        Bootstrap, CriticPlan, Granularity, GreedyPlan, GroupPlan, MixerNetwork, MixerPlan,
        MovingAveragePlan, RewardPlan, Singleton,
    };
    use crate::credit::{Advantage, CPU, Gdpo};
    use crate::plan::{Chosen, Instance};
    use crate::trajectory::{RewardOf, RewardPart};

    fn played(rewards: [f64; 2]) -> [Episode; 2] {
        let one = |index, reward| episode("p", index, reward, vec![turn("t/a", 0)]);
        [one(0, rewards[0]), one(1, rewards[1])]
    }

    fn learned(plan: &Plan, episodes: &[Episode]) -> (Metrics, StepAdvantages, Batches) {
        let at = StepPlan { plan, step: 0, rates: None };
        let none = ValuePredictions::default();
        let Samples { rows, metrics } =
            samples(&at, episodes, &mut AlgorithmState::default(), &CPU).unwrap();
        let advantages = advantages(plan, episodes, &rows, &none, (&CPU, 0.0));
        let batches = batches(&at, episodes, &rows, &advantages, &none);
        (metrics, advantages, batches)
    }

    #[test]
    fn a_flat_step_has_numbers_and_no_batch() {
        let plan = plan(&[("t/a", true)]);
        let (rollout, advantages, batches) = learned(&plan, &played([1.0, 1.0]));
        assert!(batches.policies.is_empty() && advantages.flat);
        assert_eq!(rollout.get("rollout/episodes"), Some(2.0));
        assert_eq!(advantages.metrics.get("group/zero_std_frac"), Some(1.0));
        assert_eq!(learned(&plan, &played([1.0, 0.0])).2.policies[0].1.rows.len(), 2);
    }

    /// Returns whether the step of some episodes is flat by an estimator, with zero values where it has critics.
    fn is_flat(kind: AdvantagePlan, whiten: bool, episodes: &[Episode]) -> bool {
        let mut plan = plan(&[("t/a", true), ("t/b", true)]);
        plan.algorithm.critic = kind.critic();
        (plan.algorithm.advantage, plan.algorithm.whiten) = (kind, whiten);
        let at = StepPlan { plan: &plan, step: 0, rates: None };
        let rows = samples(&at, episodes, &mut AlgorithmState::default(), &CPU).unwrap().rows;
        let values = rows.iter().map(|row| vec![0.1; row.tokens]).collect();
        let predicted = ValuePredictions { values, ..ValuePredictions::default() };
        match plan.mixer_plan() {
            Some(_) => {
                let tokens = rows.iter().map(|row| vec![0.1 * row.turn as f64; row.tokens]);
                let shares = (tokens.collect(), Metrics::default());
                mixed_advantages(&plan, episodes, &rows, &predicted, shares, (&CPU, 0.0)).flat
            }
            None => advantages(&plan, episodes, &rows, &predicted, (&CPU, 0.0)).flat,
        }
    }

    /// Returns a declared estimator, with or without a critic.
    fn declared_kind(options: serde_json::Value) -> AdvantagePlan {
        let value: Arc<dyn Advantage> = Arc::new(Gdpo::default());
        let chosen = Chosen { name: "gdpo".to_owned(), options };
        AdvantagePlan::Declared(Instance { chosen, value })
    }

    fn kinds() -> Vec<AdvantagePlan> {
        let raw = GroupPlan { singleton: Singleton::Raw, ..GroupPlan::default() };
        let critic = |bootstrap| CriticPlan { bootstrap, ..CriticPlan::default() };
        vec![
            AdvantagePlan::Group(GroupPlan::default()),
            AdvantagePlan::Group(raw),
            AdvantagePlan::Reward(RewardPlan::default()),
            AdvantagePlan::MovingAverage(MovingAveragePlan::default()),
            AdvantagePlan::Critic(critic(Bootstrap::Turn)),
            AdvantagePlan::Critic(critic(Bootstrap::Seat)),
            AdvantagePlan::Critic(critic(Bootstrap::Team)),
            AdvantagePlan::Mixer(MixerPlan::default()),
            AdvantagePlan::Mixer(MixerPlan {
                network: MixerNetwork::Monotone,
                ..MixerPlan::default()
            }),
            declared_kind(serde_json::json!({})),
            declared_kind(serde_json::json!({ "critic": {} })),
        ]
    }

    #[test]
    fn a_step_whose_rewards_are_all_equal_is_flat_for_every_estimator() {
        let one = |task: &str, index, reward| {
            episode(task, index, reward, vec![turn("t/a", 0), turn("t/b", 1)])
        };
        for (kind, whiten) in
            kinds().into_iter().flat_map(|kind| [(kind.clone(), false), (kind, true)])
        {
            for reward in [0.0, 1.0, -0.5, 1e6] {
                let tasks = [one("p", 0, reward), one("q", 0, reward), one("q", 1, reward)];
                assert!(is_flat(kind.clone(), whiten, &tasks), "{kind:?}, {reward}");
                // Rounding is no difference.
                let near = [one("p", 0, reward), one("p", 1, reward + 1e-13)];
                assert!(is_flat(kind.clone(), whiten, &near), "{kind:?}, {reward}");
                let other = [one("p", 0, reward), one("p", 1, reward - 0.1), one("q", 0, reward)];
                assert!(!is_flat(kind.clone(), whiten, &other), "{kind:?}, {reward}");
            }
        }
    }

    #[test]
    fn one_episode_is_compared_by_values_and_so_are_parts_of_equal_sum_along_a_chain() {
        let one = |index, reward| episode("p", index, reward, vec![turn("t/a", 0), turn("t/b", 1)]);
        for kind in kinds().into_iter().filter(|kind| kind.critic().is_some()) {
            assert!(!is_flat(kind.clone(), true, &[one(0, 1.0)]), "{kind:?}");
            // Every turn of both episodes earns 1. A chain earns the part of a seat or a turn earlier than the score.
            let mut paid = one(1, 0.0);
            let of = RewardOf::Episode;
            paid.rewards.push(RewardPart { name: "help".to_owned(), value: 1.0, of });
            let chained = kind.compares_parts();
            assert_eq!(!is_flat(kind.clone(), true, &[one(0, 1.0), paid]), chained, "{kind:?}");
            // A penalty of one turn.
            let mut cut = one(1, 1.0);
            let of = RewardOf::Turn(1);
            cut.rewards.push(RewardPart { name: "invalid_reply".to_owned(), value: -0.1, of });
            assert!(!is_flat(kind, true, &[one(0, 1.0), cut]));
        }
    }

    /// Returns whether a step is flat with the rewards of a task's greedy episode after those of its group.
    fn is_flat_beside_greedy(whiten: bool, group: &[f64], greedy: f64) -> bool {
        let mut plan = plan(&[("t/a", true), ("t/b", true)]);
        let size = NonZeroU32::new(group.len() as u32).unwrap();
        plan.config = plan.config.with(|config| config.task.group_size = size);
        plan.algorithm.advantage = AdvantagePlan::Greedy(GreedyPlan::default());
        plan.algorithm.whiten = whiten;
        let rewards = group.iter().chain([&greedy]).enumerate();
        let turns = || vec![turn("t/a", 0), turn("t/b", 1)];
        let episodes: Vec<Episode> =
            rewards.map(|(index, &reward)| episode("p", index as u32, reward, turns())).collect();
        let (_, advantages, batches) = learned(&plan, &episodes);
        assert_eq!(batches.policies.is_empty(), advantages.flat);
        advantages.flat
    }

    #[test]
    fn a_step_is_flat_beside_greedy_episodes_if_they_earn_the_same() {
        for whiten in [false, true] {
            for reward in [0.0, 1.0, -0.5, 1e6] {
                for n in [1, 3] {
                    assert!(is_flat_beside_greedy(whiten, &[reward; 3][..n], reward), "{reward}");
                }
                assert!(!is_flat_beside_greedy(whiten, &[reward, reward - 0.1], reward));
            }
        }
        // A whole group above its greedy episode has something to learn, also with one episode in it.
        assert!(!is_flat_beside_greedy(false, &[1.0, 1.0], 0.0));
        assert!(!is_flat_beside_greedy(false, &[1.0], 0.0));
    }

    #[test]
    fn a_step_of_equal_rewards_has_no_pair_and_is_flat() {
        let plan = plan(&[("t/a", true), ("t/b", true)]);
        let at = StepPlan { plan: &plan, step: 0, rates: None };
        let turns = || vec![turn("t/a", 0), turn("t/b", 1)];
        let of = |rewards: &[f64]| {
            let rewards = rewards.iter().enumerate();
            let episodes: Vec<Episode> = rewards
                .map(|(index, &reward)| episode("p", index as u32, reward, turns()))
                .collect();
            let rows = samples(&at, &episodes, &mut AlgorithmState::default(), &CPU).unwrap().rows;
            let found = pairs(&plan, &episodes, &rows, &CPU);
            assert_eq!(found.flat, found.tokens.iter().flatten().all(|sign| *sign == 0.0));
            (found.flat, found.pairs.len())
        };
        for reward in [0.0, 1.0, -0.5, 1e6] {
            assert_eq!(of(&[reward; 4]), (true, 0), "{reward}");
            assert_eq!(of(&[reward, reward + 1e-13]), (true, 0), "{reward}");
            assert_eq!(of(&[reward, reward - 0.1, reward]), (false, 2), "{reward}");
        }
        assert_eq!(of(&[1.0]), (true, 0));
    }

    /// Returns the whitened advantages of two tasks, in one of which the rewards differ, with this unit of rewards.
    fn in_unit(kind: AdvantagePlan, unit: f64) -> Vec<f64> {
        let mut plan = plan(&[("t/a", true)]);
        plan.algorithm.critic = kind.critic();
        (plan.algorithm.advantage, plan.algorithm.whiten) = (kind, true);
        let one = |(i, reward): (usize, f64)| {
            episode(["p", "q"][i / 4], i as u32 % 4, unit * reward, vec![turn("t/a", 0)])
        };
        let rewards = [1.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0];
        let episodes: Vec<Episode> = rewards.into_iter().enumerate().map(one).collect();
        let at = StepPlan { plan: &plan, step: 0, rates: None };
        let mut state = AlgorithmState::default();
        let rows = samples(&at, &episodes, &mut state, &CPU).unwrap().rows;
        let values = rows.iter().map(|row| vec![0.99 * row.reward; row.tokens]).collect();
        let predicted = ValuePredictions { values, ..ValuePredictions::default() };
        let on = (&CPU, state.rewards.least_divisor());
        advantages(&plan, &episodes, &rows, &predicted, on).tokens.concat()
    }

    #[test]
    fn the_unit_of_rewards_changes_no_whitened_advantage() {
        let group = |normalize_std| {
            AdvantagePlan::Group(GroupPlan { normalize_std, ..GroupPlan::default() })
        };
        let critic = CriticPlan { granularity: Granularity::Turn, ..CriticPlan::default() };
        for kind in [
            group(true),
            group(false),
            AdvantagePlan::Reward(RewardPlan::default()),
            AdvantagePlan::Critic(critic),
        ] {
            let whole = in_unit(kind.clone(), 1.0);
            for unit in [100.0, 1e6, 1e-2] {
                assert_close(
                    &format!("{kind:?}, {unit}"),
                    &in_unit(kind.clone(), unit),
                    &whole,
                    1e-3,
                );
            }
            // What a deviation has divided has its own size; what is left of a critic's rewards is error, and stays small.
            let most = whole.iter().fold(0.0_f64, |most, a| most.max(a.abs()));
            assert_eq!(most > 1.0, kind.critic().is_none(), "{kind:?}: {whole:?}");
        }
    }

    /// Returns the advantages of a step of `n` episodes that earned 1, as a critic or a mixer computes them, and its record.
    fn of_values(kind: AdvantagePlan, n: u32) -> (Vec<f64>, StepSamples) {
        let mut plan = plan(&[("t/a", true), ("t/b", true)]);
        plan.algorithm.critic = kind.critic();
        (plan.algorithm.advantage, plan.algorithm.whiten) = (kind, true);
        let turns = || vec![turn("t/a", 0), turn("t/b", 1)];
        let episodes: Vec<Episode> = (0..n).map(|i| episode("p", i, 1.0, turns())).collect();
        let at = StepPlan { plan: &plan, step: 0, rates: None };
        let mut state = AlgorithmState::default();
        let rows = samples(&at, &episodes, &mut state, &CPU).unwrap().rows;
        let on = (&CPU, state.rewards.least_divisor());
        let values = vec![vec![0.25]; rows.len()];
        let predicted = ValuePredictions { values, ..ValuePredictions::default() };
        let found = match plan.mixer_plan() {
            None => advantages(&plan, &episodes, &rows, &predicted, on),
            Some(_) => {
                let before = rows.iter().map(|row| vec![row.reward - 0.25; row.tokens]).collect();
                mixed_advantages(
                    &plan,
                    &episodes,
                    &rows,
                    &predicted,
                    (before, Metrics::default()),
                    on,
                )
            }
        };
        assert_eq!(found.flat, n > 1);
        (found.tokens.concat(), found.record)
    }

    #[test]
    fn one_episode_keeps_what_its_critics_say_and_several_are_whitened() {
        let critic = CriticPlan { granularity: Granularity::Turn, ..CriticPlan::default() };
        for kind in [AdvantagePlan::Critic(critic), AdvantagePlan::Mixer(MixerPlan::default())] {
            let (one, record) = of_values(kind.clone(), 1);
            assert!(!one.is_empty() && one.iter().all(|a| *a == 0.75), "{kind:?}: {one:?}");
            assert_eq!(record.estimator.whiten, None, "{kind:?}");
            assert!(record.samples.iter().all(|sample| sample.unwhitened.is_none()));
            let (two, record) = of_values(kind.clone(), 2);
            assert!(two.iter().all(|a| a.abs() < 1e-9), "{kind:?}: {two:?}");
            assert!(record.estimator.whiten.is_some(), "{kind:?}");
        }
    }

    #[test]
    fn a_step_without_a_turn_to_train_on_is_an_error() {
        let plan = plan(&[("t/a", false)]);
        let at = StepPlan { plan: &plan, step: 4, rates: None };
        let error = samples(&at, &played([1.0, 0.0]), &mut AlgorithmState::default(), &CPU);
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("step 5 has 2 scored episodes"), "{error}");
    }
}

//! Batches: one step's rows for each policy, in the order that fixes every sum.

use maverl_engine::loss::LossOptions;
use maverl_engine::runtime::{Batch, Objective, Row};

use crate::algo::{Sample, lr};
use crate::plan::Plan;
use crate::trajectory::Episode;

/// Builds the batch of each trained policy that has samples in training step `step`, sorted by policy, with that step's
/// learning rate.
///
/// Rows keep the order of `samples`: (task, episode index, turn path). Rows with advantage 0 are kept: they count in
/// every denominator and get gradients from the KL and entropy terms. The log-probs of a greedily sampled row are at
/// temperature 1.
///
/// # Panics
///
/// If `advantages` do not match the samples, or a sample has no tokens ([`crate::algo::samples`] returns none such).
pub fn batches(
    plan: &Plan,
    episodes: &[Episode],
    samples: &[Sample],
    advantages: &[Vec<f64>],
    step: u64,
) -> Vec<(usize, Batch)> {
    assert_eq!(advantages.len(), samples.len(), "batches: advantages of each sample");
    let rows_of = |policy: usize| -> Vec<Row> {
        samples
            .iter()
            .zip(advantages)
            .filter(|(sample, _)| sample.policy == policy)
            .map(|(sample, advantages)| row(plan, episodes, sample, advantages))
            .collect()
    };
    let batch = |policy: usize| Batch {
        rows: rows_of(policy),
        objective: Objective::PolicyGradient,
        surrogate: plan.algorithm.custom_surrogate(),
        minibatches: plan.algorithm.minibatches,
        epochs: plan.algorithm.epochs,
        aggregation: plan.algorithm.aggregation.into(),
        longest: plan.longest_reply(policy),
        early_stop_kl: plan.algorithm.early_stop_kl,
        lr: lr(step, plan.steps, &plan.policies[policy].optim),
        record_tokens: plan.config.record.tokens_in(step),
    };
    let learning = (0..plan.policies.len()).filter(|&policy| plan.learns(policy, step));
    let all = learning.map(|policy| (policy, batch(policy)));
    all.filter(|(_, batch)| !batch.rows.is_empty()).collect()
}

/// Builds the row of one sample.
pub(crate) fn row(plan: &Plan, episodes: &[Episode], sample: &Sample, advantages: &[f64]) -> Row {
    let turn = &episodes[sample.episode].turns[sample.turn];
    let tokens = turn.tokens.as_ref().expect("a sample is a turn with tokens");
    Row {
        prompt: tokens.prompt.clone(),
        completion: tokens.completion.clone(),
        logprobs: tokens.logprobs.clone(),
        advantages: advantages.iter().map(|&advantage| advantage as f32).collect(),
        temperature: if tokens.temperature == 0.0 { 1.0 } else { tokens.temperature },
        weights: Vec::new(),
        loss: LossOptions::from(&plan.seats[sample.seat].loss),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::testing::{episode, plan, turn};
    use crate::algo::{advantages, samples};

    #[test]
    fn shared_seats_make_one_batch_and_frozen_seats_none() {
        let mut plan = plan(&[("t/a", true), ("t/b", true), ("t/c", false)]);
        plan.seats[1].policy = 0;
        plan.seats[1].loss.entropy_coef = 0.1;
        let turns = || vec![turn("t/a", 0), turn("t/b", 1), turn("t/c", 2)];
        let episodes = [episode("p", 1, 1.0, turns()), episode("p", 0, 0.0, turns())];
        let samples = samples(&episodes, &plan);
        let values = advantages(&episodes, &samples, &plan.algorithm, &crate::credit::CPU)
            .by_token(&samples);
        let batches = batches(&plan, &episodes, &samples, &values, 0);
        assert_eq!(batches.iter().map(|(policy, _)| *policy).collect::<Vec<_>>(), [0]);
        let rows = &batches[0].1.rows;
        assert_eq!(
            rows.iter().map(|r| r.advantages[0] < 0.0).collect::<Vec<_>>(),
            [true, true, false, false]
        );
        assert_eq!(
            rows.iter().map(|r| r.loss.entropy_coef).collect::<Vec<_>>(),
            [0.0, 0.1, 0.0, 0.1]
        );
        assert_eq!(batches[0].1.lr, plan.policies[0].optim.lr);
    }

    #[test]
    fn policies_learn_one_after_the_other_in_a_cycle() {
        let mut plan = plan(&[("t/a", true), ("t/b", false), ("t/c", true)]);
        let turns = || vec![turn("t/a", 0), turn("t/b", 1), turn("t/c", 2)];
        let episodes = [episode("p", 1, 1.0, turns()), episode("p", 0, 0.0, turns())];
        let samples = samples(&episodes, &plan);
        let values = advantages(&episodes, &samples, &plan.algorithm, &crate::credit::CPU)
            .by_token(&samples);
        let learn = |plan: &Plan, step| {
            let batches = batches(plan, &episodes, &samples, &values, step);
            batches.into_iter().map(|(policy, _)| policy).collect::<Vec<_>>()
        };
        assert_eq!(learn(&plan, 7), [0, 2]);
        plan.algorithm.train_cycle = 2;
        let who: Vec<_> = (0..6).map(|step| learn(&plan, step)).collect();
        assert_eq!(who, [[0], [0], [2], [2], [0], [0]]);
    }

    #[test]
    fn rows_without_advantage_stay_and_greedy_rows_have_temperature_one() {
        let plan = plan(&[("t/a", true)]);
        let mut episodes = [
            episode("p", 0, 1.0, vec![turn("t/a", 0)]),
            episode("p", 1, 1.0, vec![turn("t/a", 0)]),
        ];
        episodes[0].turns[0].tokens.as_mut().unwrap().temperature = 0.0;
        episodes[1].turns[0].tokens.as_mut().unwrap().temperature = 0.7;
        let samples = samples(&episodes, &plan);
        let batches = batches(&plan, &episodes, &samples, &[vec![0.0; 2], vec![0.0; 2]], 3);
        let temperatures: Vec<_> = batches[0].1.rows.iter().map(|row| row.temperature).collect();
        assert_eq!(temperatures, [1.0, 0.7]);
    }
}

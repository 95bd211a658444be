//! Batches: one step's rows for each policy, in the order that fixes every sum.

use maverl_engine::runtime::{Batch, Objective, ObservedText, Row, TeacherTokens};

use crate::algo::advantage::ReplyPair;
use crate::algo::{Observed, ReplayedGroups, Sample};
use crate::config::TruncatedReply;
use crate::plan::Plan;
use crate::trajectory::{Episode, Finish};

/// Builds the batch of each trained policy that has samples in training step `step`, sorted by policy, with that step's
/// learning rate.
///
/// Rows keep the order of `samples`: (task, episode index, turn path). Truncated replies are skipped if their seat says so
/// (`loss.truncated`), and a policy whose rows are all skipped has no batch. Rows with advantage 0 are kept: they count in
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
    with_replayed(plan, (episodes, samples), advantages, &ReplayedGroups::default(), step)
}

/// Builds the batches of a step as [`batches`] does, with the rows of groups that are replayed after those of the samples. Rows of
/// the tasks that these replace are skipped.
pub(crate) fn with_replayed(
    plan: &Plan,
    (episodes, samples): (&[Episode], &[Sample]),
    advantages: &[Vec<f64>],
    replayed: &ReplayedGroups,
    step: u64,
) -> Vec<(usize, Batch)> {
    assert_eq!(advantages.len(), samples.len(), "batches: advantages of each sample");
    let mut batches = empty_batches(plan, step);
    for (policy, batch) in &mut batches {
        batch.rows = rows_of(plan, *policy, (episodes, samples), advantages);
        let its = samples.iter().filter(|sample| sample.policy == *policy);
        for (row, sample) in batch.rows.iter_mut().zip(its) {
            row.skipped |= replayed.replaced.contains(&sample.task);
        }
        for group in &replayed.groups {
            let of = (&group.episodes[..], &group.samples[..]);
            batch.rows.extend(rows_of(plan, *policy, of, &group.advantages));
        }
        batch.surrogate = plan.algorithm.custom_surrogate();
        batch.selection = plan.algorithm.select;
        batch.aggregation = plan.algorithm.aggregation;
        batch.longest = plan.longest_reply(*policy);
        batch.early_stop_kl = plan.algorithm.early_stop_kl;
        batch.record_tokens = plan.config.record.tokens_in(step);
    }
    batches.retain(|(_, batch)| batch.trained_rows().next().is_some());
    batches
}

/// Builds the rows of a policy's samples.
fn rows_of(
    plan: &Plan,
    policy: usize,
    (episodes, samples): (&[Episode], &[Sample]),
    advantages: &[Vec<f64>],
) -> Vec<Row> {
    let rows = samples.iter().zip(advantages).filter(|(sample, _)| sample.policy == policy);
    let rows = rows.map(|(sample, advantages)| Row {
        skipped: is_skipped(plan, episodes, sample),
        ..row(plan, episodes, sample, advantages)
    });
    rows.collect()
}

/// Adds the distributions of teachers, one or none for each of the samples of the batches, to their rows.
pub(crate) fn add_teachers(
    plan: &Plan,
    samples: &[Sample],
    taught: &[Option<TeacherTokens>],
    batches: &mut [(usize, Batch)],
) {
    for (policy, batch) in batches {
        batch.distill = plan.algorithm.distill.options();
        let its = samples.iter().zip(taught).filter(|(sample, _)| sample.policy == *policy);
        for (row, (_, teacher)) in batch.rows.iter_mut().zip(its) {
            row.teacher.clone_from(teacher);
        }
    }
}

/// Adds rows of the observations in the prompts of samples, after those of the samples. A row is in the minibatch of that of its
/// sample, and shares its tokens.
pub(crate) fn add_observations(
    plan: &Plan,
    (episodes, samples): (&[Episode], &[Sample]),
    observed: &[Observed],
    batches: &mut [(usize, Batch)],
) {
    for (policy, batch) in batches {
        let of_policy = |sample: &&Sample| sample.policy == *policy;
        for Observed { sample: index, tokens } in observed {
            let sample = &samples[*index];
            if !of_policy(&sample) {
                continue;
            }
            let before = samples[..*index].iter().filter(of_policy).count();
            let coef = plan.seats[sample.seat].loss.observation_coef;
            let Row { prompt, .. } = row(plan, episodes, sample, &[]);
            batch.rows.push(Row {
                completion: prompt[tokens.clone()].to_vec(),
                prompt: prompt[..tokens.start].to_vec(),
                skipped: true,
                observation: Some(ObservedText { coef, row: before }),
                ..Row::default()
            });
        }
    }
}

/// Returns true if a sample counts in its group, and is not trained on because its reply was truncated.
fn is_skipped(plan: &Plan, episodes: &[Episode], sample: &Sample) -> bool {
    let tokens = episodes[sample.episode].turns[sample.turn].tokens.as_ref();
    plan.seats[sample.seat].loss.truncated == TruncatedReply::Skip
        && tokens.is_some_and(|tokens| tokens.finish == Finish::Length)
}

/// Builds the batch of each trained policy that has pairs of replies, or replies with a label, in training step `step`, sorted by
/// policy. The rows of a pair are the turns of the better reply, then those of the worse one.
///
/// Rows have no log-probs of the sampler, since the loss of pairs has no ratio to it. Log-probs of the policy and of the
/// reference are at the temperature of the sampler.
pub fn pair_batches(
    plan: &Plan,
    episodes: &[Episode],
    samples: &[Sample],
    pairs: &[ReplyPair],
    step: u64,
) -> Vec<(usize, Batch)> {
    let mut batches = empty_batches(plan, step);
    for (policy, batch) in &mut batches {
        batch.objective = Objective::Preference(plan.algorithm.preference);
        let is_own = |turn: usize| samples[turn].policy == *policy;
        for pair in pairs.iter().filter(|pair| pair.turns().next().is_some_and(is_own)) {
            for turn in pair.turns() {
                let row = row(plan, episodes, &samples[turn], &[]);
                batch.rows.push(Row { logprobs: Vec::new(), ..row });
            }
            batch.pairs.push([pair.chosen.len(), pair.rejected.len()]);
        }
    }
    batches.retain(|(_, batch)| !batch.rows.is_empty());
    batches
}

/// Returns an empty batch of each policy that learns in a step, with its number of optimizer steps and learning rate.
fn empty_batches(plan: &Plan, step: u64) -> Vec<(usize, Batch)> {
    let mut batches = Vec::new();
    for policy in (0..plan.policies.len()).filter(|&policy| plan.learns(policy, step)) {
        let lr = plan.policies[policy].optim.rate(step, plan.config.steps);
        let (minibatches, epochs) = (plan.algorithm.minibatches, plan.algorithm.epochs);
        let router_aux_coef = plan.algorithm.router_aux_coef;
        let batch = Batch { minibatches, epochs, lr, router_aux_coef, ..Batch::default() };
        batches.push((policy, batch));
    }
    batches
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
        loss: plan.seats[sample.seat].loss.options(),
        routes: tokens.routes.clone(),
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::advantage::pairs_of_step;
    use crate::algo::testing::{episode, plan, turn};
    use crate::algo::{KeptGroup, ReplayedGroup, advantages, samples};
    use crate::config::Preset;
    use crate::credit::CPU;
    use crate::plan::AlgorithmPlan;

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
    fn the_rows_of_a_pair_are_the_turns_of_the_better_reply_then_those_of_the_worse() {
        let mut plan = plan(&[("t/a", true), ("t/b", true)]);
        plan.algorithm = AlgorithmPlan::from(&Preset::OnlineDpo.parts());
        let numbered = |id: u32, seat: &str, place| {
            let mut turn = turn(seat, place);
            turn.tokens.as_mut().unwrap().completion = vec![id];
            turn
        };
        let worse = vec![numbered(1, "t/a", 0), numbered(2, "t/b", 1), numbered(3, "t/a", 2)];
        let better = vec![numbered(4, "t/a", 0), numbered(5, "t/b", 1)];
        let episodes = [episode("p", 0, 0.0, worse), episode("p", 1, 1.0, better)];
        let samples = samples(&episodes, &plan);
        let found = pairs_of_step(&samples, &CPU);
        let batches = pair_batches(&plan, &episodes, &samples, &found.pairs, 0);
        let ids =
            |batch: &Batch| batch.rows.iter().map(|row| row.completion[0]).collect::<Vec<_>>();
        let [(0, a), (1, b)] = &batches[..] else { panic!("{batches:?}") };
        assert_eq!((ids(a), &a.pairs[..]), (vec![4, 1, 3], &[[1, 2]][..]));
        assert_eq!((ids(b), &b.pairs[..]), (vec![5, 2], &[[1, 1]][..]));
        assert!(a.rows.iter().all(|row| row.logprobs.is_empty()));
        assert!(matches!(a.objective, Objective::Preference(_)));
    }

    #[test]
    fn truncated_replies_are_skipped_where_their_seat_says_so_and_count_in_their_group() {
        let mut plan = plan(&[("t/a", true)]);
        let cut = |index, reward| {
            let mut episode = episode("p", index, reward, vec![turn("t/a", 0)]);
            episode.turns[0].tokens.as_mut().unwrap().finish = Finish::Length;
            episode
        };
        let one = episode("p", 1, 0.0, vec![turn("t/a", 0)]);
        let skipped = |plan: &Plan, episodes: &[Episode]| {
            let samples = samples(episodes, plan);
            let values = advantages(episodes, &samples, &plan.algorithm, &CPU).by_token(&samples);
            assert!(values.iter().all(|advantages| advantages[0] != 0.0), "both are compared");
            let found = batches(plan, episodes, &samples, &values, 0);
            found
                .iter()
                .map(|(_, batch)| batch.rows.iter().map(|row| row.skipped).collect())
                .collect()
        };
        let none: Vec<Vec<bool>> = skipped(&plan, &[cut(0, 1.0), one.clone()]);
        assert_eq!(none, [[false, false]]);
        plan.seats[0].loss.truncated = TruncatedReply::Skip;
        assert_eq!(skipped(&plan, &[cut(0, 1.0), one]), [[true, false]]);
        let all = skipped(&plan, &[cut(0, 1.0), cut(1, 0.0)]);
        assert!(all.is_empty(), "a policy without rows has no batch: {all:?}");
    }

    #[test]
    fn replayed_groups_follow_the_samples_and_what_they_replace_is_skipped() {
        let plan = plan(&[("t/a", true), ("t/b", true)]);
        let numbered = |task: &str, index, id: u32, seat: &str| {
            let mut turn = turn(seat, 0);
            turn.tokens.as_mut().unwrap().completion = vec![id, 0];
            turn.tokens.as_mut().unwrap().version = 3;
            episode(task, index, 0.0, vec![turn])
        };
        let episodes = [numbered("p", 0, 1, "t/a"), numbered("q", 0, 2, "t/a")];
        let rows = samples(&episodes, &plan);
        let old = vec![numbered("q", 0, 3, "t/a"), numbered("q", 1, 4, "t/b")];
        let kept = KeptGroup {
            step: 1,
            source: "test".to_owned(),
            task: "q".to_owned(),
            score: 0.5,
            advantages: vec![0.75, -0.25],
        };
        let group = ReplayedGroup::new(&plan, &kept, old).unwrap();
        let replaced = [rows[0].task.clone()].into();
        let replayed = ReplayedGroups { groups: vec![group], replaced };
        let advantages = [vec![0.0; 2], vec![0.5; 2]];
        let found = with_replayed(&plan, (&episodes, &rows), &advantages, &replayed, 0);
        let of = |batch: &Batch| -> Vec<(u32, bool, f32)> {
            let row = |row: &Row| (row.completion[0], row.skipped, row.advantages[1]);
            batch.rows.iter().map(row).collect()
        };
        let [(0, a), (1, b)] = &found[..] else { panic!("{found:?}") };
        assert_eq!(of(a), [(1, true, 0.0), (2, false, 0.5), (3, false, 0.75)]);
        // A policy that has no sample in the step learns from the group too.
        assert_eq!(of(b), [(4, false, -0.25)]);
        assert_eq!(b.rows[0].logprobs, [-0.5, -0.25], "those of the sampler");
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

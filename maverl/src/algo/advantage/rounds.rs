//! Rewards of turns from those of later rounds, and from what agents made of each other.

use std::collections::BTreeMap;

use super::{ScoreShare, discounted_scores, influence_bonus};
use crate::algo::Sample;
use crate::config::FutureRewards;
use crate::plan::{AlgorithmPlan, InfluencePlan};

/// A reward above this is a right answer.
const RIGHT: f64 = 0.5;

/// Changes the rewards of samples as `future_rewards` and `influence` say; see [`discounted_scores`] and [`influence_bonus`].
///
/// A round is one turn of every seat of the episode. Episodes whose seats spoke unequally often have no rounds, and keep
/// their rewards.
pub fn apply_future_rewards(samples: &mut [Sample], algorithm: &AlgorithmPlan) {
    let paid = algorithm.influence != InfluencePlan::default();
    if algorithm.future_rewards == FutureRewards::None && !paid {
        return;
    }
    for rounds in rounds(samples) {
        let scores: Vec<Vec<f64>> =
            rounds.iter().map(|round| round.iter().map(|&i| samples[i].reward).collect()).collect();
        let right: Vec<Vec<bool>> =
            scores.iter().map(|round| round.iter().map(|&score| score > RIGHT).collect()).collect();
        let worth = match algorithm.future_rewards {
            FutureRewards::None => scores,
            FutureRewards::Team(future) => {
                discounted_scores(&scores, future.discount, ScoreShare::All)
            }
            FutureRewards::Own(future) => {
                discounted_scores(&scores, future.discount, ScoreShare::Individual)
            }
        };
        let bonuses = influence_bonus(&right, &algorithm.influence);
        for (i, (worth, bonus)) in
            rounds.concat().into_iter().zip(worth.concat().into_iter().zip(bonuses.concat()))
        {
            samples[i].reward = worth + bonus;
        }
    }
}

/// The samples of each episode that has rounds, `[rounds][seats]`.
fn rounds(samples: &[Sample]) -> Vec<Vec<Vec<usize>>> {
    let mut episodes: BTreeMap<usize, BTreeMap<usize, Vec<usize>>> = BTreeMap::new();
    for (i, sample) in samples.iter().enumerate() {
        episodes.entry(sample.episode).or_default().entry(sample.seat).or_default().push(i);
    }
    let equal = |seats: &BTreeMap<usize, Vec<usize>>| {
        let first = seats.values().next()?.len();
        let rounds = || (0..first).map(|t| seats.values().map(|turns| turns[t]).collect());
        seats.values().all(|turns| turns.len() == first).then(|| rounds().collect())
    };
    episodes.values().filter_map(equal).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::samples;
    use crate::algo::testing::{assert_close, episode, plan, turn};
    use crate::config::FuturePlan;

    /// Two seats that speak in turn, with these rewards `[rounds][seats]`.
    fn played(scores: &[[f64; 2]]) -> Vec<Sample> {
        let name = |seat: usize| ["t/a", "t/b"][seat];
        let turns = (0..2 * scores.len()).map(|i| turn(name(i % 2), i as u32)).collect();
        let plan = plan(&[("t/a", true), ("t/b", true)]);
        let mut samples = samples(&[episode("p", 0, 0.0, turns)], &plan);
        for (sample, score) in samples.iter_mut().zip(scores.as_flattened()) {
            sample.reward = *score;
        }
        samples
    }

    fn shaped(
        scores: &[[f64; 2]],
        later: FutureRewards,
        [follow, resist, provoke, persuade]: [f64; 4],
    ) -> Vec<f64> {
        let mut samples = played(scores);
        let influence = InfluencePlan { follow, resist, provoke, persuade };
        let algorithm = AlgorithmPlan { future_rewards: later, influence, ..plan(&[]).algorithm };
        apply_future_rewards(&mut samples, &algorithm);
        samples.iter().map(|sample| sample.reward).collect()
    }

    #[test]
    fn rewards_of_rounds_agree_with_the_reference() {
        let scores = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]];
        let want = [0.892086, 0.172662, 0.230769, 1.0, 1.0, 1.0];
        assert_close(
            "marl.md 8.1, all",
            &shaped(&scores, FutureRewards::Team(FuturePlan::default()), [0.0; 4]),
            &want,
            1e-6,
        );
        let want = [0.784173, 0.280576, 0.230769, 1.0, 1.0, 1.0];
        assert_close(
            "marl.md 8.1, own",
            &shaped(&scores, FutureRewards::Own(FuturePlan::default()), [0.0; 4]),
            &want,
            1e-6,
        );
        // marl.md 8.2, with the sign of the paper where the published code has the opposite.
        let want = [1.0, 0.0, -0.1, 1.5, 1.1, 1.0];
        let got = shaped(&scores, FutureRewards::None, [0.1, 0.2, 0.3, 0.4]);
        assert_close("marl.md 8.2", &got, &want, 1e-12);
    }

    #[test]
    fn an_episode_in_which_seats_spoke_unequally_often_keeps_its_rewards() {
        let mut samples = played(&[[1.0, 0.0], [0.5, 1.0]]);
        samples.pop();
        let before: Vec<f64> = samples.iter().map(|sample| sample.reward).collect();
        let future_rewards = FutureRewards::Team(FuturePlan::default());
        let algorithm = AlgorithmPlan { future_rewards, ..plan(&[]).algorithm };
        apply_future_rewards(&mut samples, &algorithm);
        assert_eq!(samples.iter().map(|sample| sample.reward).collect::<Vec<_>>(), before);
    }
}

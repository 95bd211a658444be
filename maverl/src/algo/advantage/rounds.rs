//! Rewards of turns from those of later rounds, and from the influence of agents on each other.

use std::collections::BTreeMap;

use super::{ScoreShare, discounted_scores, influence_bonus};
use crate::algo::Sample;
use crate::config::FutureRewards;
use crate::plan::{AlgorithmPlan, InfluencePlan};
use crate::trajectory::Episode;

/// A turn whose judgement is above this is right.
const RIGHT: f64 = 0.5;

/// Changes the rewards of samples as `future_rewards` and `influence` say; see [`discounted_scores`] and [`influence_bonus`].
///
/// A round is one turn of every seat of the episode. Episodes whose seats spoke unequally often have no rounds, and keep
/// their rewards. Influence takes a turn for right by the judgement of its own answer alone (`Episode::judgements`). The score
/// and the parts of the episode and of the seat are equal for turns that differ, a penalty is of another quality than being
/// right, and a verifier may be wrong.
pub fn apply_future_rewards(
    episodes: &[Episode],
    samples: &mut [Sample],
    algorithm: &AlgorithmPlan,
) {
    let paid = algorithm.influence != InfluencePlan::default();
    if algorithm.future_rewards == FutureRewards::None && !paid {
        return;
    }
    let judged: Vec<Vec<f64>> = episodes.iter().map(Episode::judgements).collect();
    for rounds in rounds(samples) {
        let (mut scores, mut right) = (Vec::<Vec<f64>>::new(), Vec::<Vec<bool>>::new());
        for round in &rounds {
            let turns = round.iter().map(|&i| &samples[i]);
            scores.push(turns.clone().map(|turn| turn.reward).collect());
            right.push(turns.map(|turn| judged[turn.episode][turn.turn] > RIGHT).collect());
        }
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
    episodes.values().filter_map(seat_rounds).collect()
}

/// Returns the turns of each round from those of each seat; `None` if the seats spoke unequally often.
fn seat_rounds(seats: &BTreeMap<usize, Vec<usize>>) -> Option<Vec<Vec<usize>>> {
    let first = seats.values().next()?.len();
    if seats.values().any(|turns| turns.len() != first) {
        return None;
    }
    Some((0..first).map(|t| seats.values().map(|turns| turns[t]).collect()).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::samples;
    use crate::algo::testing::{assert_close, episode, plan, turn};
    use crate::config::FuturePlan;
    use crate::trajectory::{RewardOf, RewardPart};

    /// Two seats that speak in turn. Each turn has a reward of its own, `[rounds][seats]`, beside that of the team.
    fn played(own: &[[f64; 2]], team: f64) -> Episode {
        let name = |seat: usize| ["t/a", "t/b"][seat];
        let turns = (0..2 * own.len()).map(|i| turn(name(i % 2), i as u32)).collect();
        let mut episode = episode("p", 0, team, turns);
        let part = |(turn, value): (usize, &f64)| {
            let of = RewardOf::Turn(turn);
            RewardPart { name: RewardPart::OWN.to_owned(), value: *value, of }
        };
        episode.rewards = own.as_flattened().iter().enumerate().map(part).collect();
        episode
    }

    fn shaped(
        episode: Episode,
        later: FutureRewards,
        [follow, resist, provoke, persuade]: [f64; 4],
    ) -> Vec<f64> {
        let episodes = [episode];
        let mut samples = samples(&episodes, &plan(&[("t/a", true), ("t/b", true)]));
        let influence = InfluencePlan { follow, resist, provoke, persuade };
        let algorithm = AlgorithmPlan { future_rewards: later, influence, ..plan(&[]).algorithm };
        apply_future_rewards(&episodes, &mut samples, &algorithm);
        samples.iter().map(|sample| sample.reward).collect()
    }

    #[test]
    fn rewards_of_rounds_agree_with_the_reference() {
        let scores = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]];
        let want = [0.892086, 0.172662, 0.230769, 1.0, 1.0, 1.0];
        assert_close(
            "marl.md 8.1, all",
            &shaped(played(&scores, 0.0), FutureRewards::Team(FuturePlan::default()), [0.0; 4]),
            &want,
            1e-6,
        );
        let want = [0.784173, 0.280576, 0.230769, 1.0, 1.0, 1.0];
        assert_close(
            "marl.md 8.1, own",
            &shaped(played(&scores, 0.0), FutureRewards::Own(FuturePlan::default()), [0.0; 4]),
            &want,
            1e-6,
        );
        // marl.md 8.2, with the sign of the paper where the published code has the opposite.
        let want = [1.0, 0.0, -0.1, 1.5, 1.1, 1.0];
        let got = shaped(played(&scores, 0.0), FutureRewards::None, [0.1, 0.2, 0.3, 0.4]);
        assert_close("marl.md 8.2", &got, &want, 1e-12);
    }

    #[test]
    fn influence_judges_a_turn_by_its_own_answer_whatever_else_the_turn_the_team_and_the_seat_earn()
    {
        let own = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]];
        let weights = [0.1, 0.2, 0.3, 0.4];
        let bonus = |episode: Episode| -> Vec<f64> {
            let plain = shaped(episode.clone(), FutureRewards::None, [0.0; 4]);
            let paid = shaped(episode, FutureRewards::None, weights);
            paid.iter().zip(plain).map(|(paid, plain)| paid - plain).collect()
        };
        let want = [0.0, 0.0, -0.1, 0.5, 0.1, 0.0];
        for team in [0.0, 1.0, -3.0, 0.6] {
            assert_close("team", &bonus(played(&own, team)), &want, 1e-12);
        }
        let mut episode = played(&own, 1.0);
        for (name, value, of) in [
            ("lead", 0.7, RewardOf::Seat(episode.turns[0].seat.clone())),
            ("lead", -0.7, RewardOf::Seat(episode.turns[1].seat.clone())),
            ("time", 2.0, RewardOf::Episode),
        ] {
            episode.rewards.push(RewardPart { name: name.to_owned(), value, of });
        }
        assert_close("seats", &bonus(episode), &want, 1e-12);
        // Other parts of the turn change nothing: a penalty that is larger than the judgement, and a verifier's number.
        for (name, value) in [("length", -0.25), ("invalid_reply", -1.0), ("verified", 0.9)] {
            let mut episode = played(&own, 1.0);
            for turn in 0..6 {
                let of = RewardOf::Turn(turn);
                episode.rewards.push(RewardPart { name: name.to_owned(), value, of });
            }
            assert_close(name, &bonus(episode), &want, 1e-12);
        }
        // Where no turn has a reward of its own, nobody changes an opinion.
        let mut episode = played(&own, 1.0);
        episode.rewards.clear();
        assert_close("none", &bonus(episode), &[0.0; 6], 1e-12);
    }

    #[test]
    fn an_episode_in_which_seats_spoke_unequally_often_keeps_its_rewards() {
        let episodes = [played(&[[1.0, 0.0], [0.5, 1.0]], 0.0)];
        let mut samples = samples(&episodes, &plan(&[("t/a", true), ("t/b", true)]));
        samples.pop();
        let before: Vec<f64> = samples.iter().map(|sample| sample.reward).collect();
        let future_rewards = FutureRewards::Team(FuturePlan::default());
        let algorithm = AlgorithmPlan { future_rewards, ..plan(&[]).algorithm };
        apply_future_rewards(&episodes, &mut samples, &algorithm);
        assert_eq!(samples.iter().map(|sample| sample.reward).collect::<Vec<_>>(), before);
    }
}

//! Credit of a reply: the values that a turn of an episode may be compared with.

use std::collections::BTreeMap;

use super::Mixing;
use crate::config::Credit;

/// Values of a turn's seat.
#[derive(Debug, Clone, PartialEq)]
pub struct SeatValues {
    /// Episode.
    pub episode: usize,
    /// Seat, from 0 to `S - 1`.
    pub seat: usize,
    /// Reward of the turn.
    pub reward: f64,
    /// Value before the reply.
    pub before: f64,
    /// Value after the reply; that before it if the credit uses no other.
    pub after: f64,
}

/// Inputs of a mixer at a turn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MixedTurn {
    /// Episode.
    pub episode: usize,
    /// Seat of the turn.
    pub seat: usize,
    /// Reward of the team: the mean reward of the episode's turns.
    pub reward: f64,
    /// Value of each seat before the reply, `[S]`.
    pub before: Vec<f64>,
    /// Value of each seat after the reply, `[S]`; it differs from `before` in the seat of the turn.
    pub after: Vec<f64>,
    /// Turns of the mean that is the value of each seat, `[S]`; none for a seat that has not spoken yet.
    pub sources: Vec<Vec<usize>>,
    /// State that the weights of the mixer depend on.
    pub state: Vec<f64>,
}

impl MixedTurn {
    /// Computes the advantage of the reply of seat i.
    ///
    /// ```text
    /// shared       A = R − f(B)                                           VDAC, 2007.12306
    /// weight       A = S wᵢ / Σ w · (R − f(B))            w = ∂f/∂B       DOP, 2007.12322
    /// without      A = R − f(B), with B after earlier replies             COMA, 1705.08926
    /// difference   A = f(C) − f(B)
    /// tokens       A = Cᵢ − Bᵢ as a whole; token by token it is the GAE of Vᵢ over the reply, with return Cᵢ
    ///
    /// B   values of the seats before the reply, from prompts and replies up to the prompt of the reply: `before`
    /// C   the same with the value of seat i after its reply: `after`
    /// ```
    ///
    /// `f(B)` is a function of what there is before the reply `a`, so it is independent of `a` given its prompt `o`, and
    /// `E[A | o, a] = E[R | o, a] − f(B)`: the policy gradient has no bias, however exact the values are. The prompt of a
    /// later seat may contain `a`. With its value in the baseline, `f → E[R | o, a]` and `E[A | o, a] → 0`. If no weight
    /// is above 0, all weights count as equal.
    pub fn advantage(&self, mixing: &Mixing, credit: Credit) -> f64 {
        let Self { seat, reward, before, after, state, .. } = self;
        match credit {
            Credit::Shared | Credit::Without => reward - mixing.total(before, state),
            Credit::Weight => {
                let mut unused = vec![0.0; mixing.params().len()];
                let weights = mixing.backward(before, state, 0.0, &mut unused);
                let sum: f64 = weights.iter().sum();
                let share =
                    if sum > 0.0 { weights.len() as f64 * weights[*seat] / sum } else { 1.0 };
                share * (reward - mixing.total(before, state))
            }
            Credit::Difference => mixing.total(after, state) - mixing.total(before, state),
            Credit::Tokens => after[*seat] - before[*seat],
        }
    }
}

/// Returns the inputs of a mixer of `seats` seats at each turn, `[N]`. `turns` are those of each episode in their order.
///
/// ```text
/// Bⱼ = mean of the values of seat j after its replies so far          j ≠ i has spoken
/// Bᵢ = the same with the value of seat i before its present reply
/// Bⱼ = mean of j's values before replies in the other episodes        j has not spoken yet
/// ```
///
/// The values of an episode do not depend on later turns. The value of a seat that has not spoken is what it is worth on
/// average, so the level of `f` is the same at all turns, whoever is called. `states` are those of the episodes before their
/// first reply, none for a mixer without a state.
pub fn mixed_turns(
    turns: &[SeatValues],
    seats: usize,
    states: &BTreeMap<usize, Vec<f64>>,
) -> Vec<MixedTurn> {
    let expected = Expected::of(turns, seats);
    let rewards = rewards(turns);
    let mut spoken: BTreeMap<usize, Vec<Vec<usize>>> = BTreeMap::new();
    let mut mixed = Vec::with_capacity(turns.len());
    for (i, turn) in turns.iter().enumerate() {
        let sources = spoken.entry(turn.episode).or_insert_with(|| vec![Vec::new(); seats]);
        let mut values = [Vec::with_capacity(seats), Vec::with_capacity(seats)];
        for (seat, sources) in sources.iter().enumerate() {
            for (values, last) in values.iter_mut().zip([turn.before, turn.after]) {
                let earlier = sources.iter().map(|&source| turns[source].after);
                let its: Vec<f64> = earlier.chain((seat == turn.seat).then_some(last)).collect();
                values.push(expected.value(turn.episode, seat, &its));
            }
        }
        let [before, after] = values;
        sources[turn.seat].push(i);
        mixed.push(MixedTurn {
            episode: turn.episode,
            seat: turn.seat,
            reward: rewards[&turn.episode],
            before,
            after,
            sources: sources.clone(),
            state: states.get(&turn.episode).cloned().unwrap_or_default(),
        });
    }
    mixed
}

/// Returns the mean reward of the turns of each episode.
fn rewards(turns: &[SeatValues]) -> BTreeMap<usize, f64> {
    let mut sums: BTreeMap<usize, (f64, usize)> = BTreeMap::new();
    for turn in turns {
        let (sum, count) = sums.entry(turn.episode).or_default();
        (*sum, *count) = (*sum + turn.reward, *count + 1);
    }
    sums.into_iter().map(|(episode, (sum, count))| (episode, sum / count as f64)).collect()
}

/// Sums of the values of seats before their replies.
struct Expected {
    /// Sum and number over all episodes, `[S]`.
    all: Vec<(f64, usize)>,
    /// Sum and number by episode and seat.
    own: BTreeMap<(usize, usize), (f64, usize)>,
}

impl Expected {
    fn of(turns: &[SeatValues], seats: usize) -> Self {
        let (mut all, mut own) = (vec![(0.0, 0); seats], BTreeMap::new());
        for turn in turns {
            let its: &mut (f64, usize) = own.entry((turn.episode, turn.seat)).or_default();
            for (sum, count) in [its, &mut all[turn.seat]] {
                (*sum, *count) = (*sum + turn.before, *count + 1);
            }
        }
        Self { all, own }
    }

    /// Returns the mean of a seat's values in an episode. If there are none, it is that of its values in the other episodes,
    /// and 0 if it speaks in no other.
    fn value(&self, episode: usize, seat: usize, values: &[f64]) -> f64 {
        if !values.is_empty() {
            return values.iter().sum::<f64>() / values.len() as f64;
        }
        let (sum, count) = self.all[seat];
        let (own, its) = self.own.get(&(episode, seat)).copied().unwrap_or_default();
        if count == its { 0.0 } else { (sum - own) / (count - its) as f64 }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::Monotone;
    use crate::algo::testing::assert_close;
    use maverl_kernels::sample::uniform_number;

    const WITH_REWARD: [Credit; 3] = [Credit::Shared, Credit::Weight, Credit::Without];

    fn turn(episode: usize, seat: usize, reward: f64, [before, after]: [f64; 2]) -> SeatValues {
        SeatValues { episode, seat, reward, before, after }
    }

    /// Returns the advantage of each turn by the sum of values.
    fn summed(turns: &[SeatValues], seats: usize, credit: Credit) -> Vec<f64> {
        let turns = mixed_turns(turns, seats, &BTreeMap::new());
        turns.iter().map(|turn| turn.advantage(&Mixing::Sum, credit)).collect()
    }

    /// Returns the mean advantage of the turns that `of` selects.
    fn mean(advantages: &[f64], of: impl Fn(usize) -> bool) -> f64 {
        let chosen: Vec<f64> =
            (0..advantages.len()).filter(|&i| of(i)).map(|i| advantages[i]).collect();
        chosen.iter().sum::<f64>() / chosen.len() as f64
    }

    /// Returns a game of `n` seats in which each reads all earlier replies and only that of the first counts. Half of the
    /// episodes are good. Values are exact: their sum is the expected reward, of which the first seat holds `own` before it
    /// speaks, and the share `known` of its action's gain after its reply; the second seat holds the rest.
    fn first_counts(n: usize, own: f64, known: f64) -> Vec<SeatValues> {
        let episode = |episode: usize| {
            let reward = f64::from(episode.is_multiple_of(2));
            let gain = reward - 0.5;
            (0..n).map(move |seat| {
                let values = match seat {
                    0 => [own, own + known * gain],
                    1 => [reward - own - known * gain; 2],
                    _ => [0.0; 2],
                };
                turn(episode, seat, reward, values)
            })
        };
        (0..100).flat_map(episode).collect()
    }

    #[test]
    fn a_first_agent_is_credited_with_its_action_however_exact_the_values_of_later_seats_are() {
        for (n, own) in [(2, 0.0), (2, 0.5), (2, -3.0), (3, 0.25), (6, 0.5)] {
            // Without replies, the values before and after one are the same.
            let mut turns = first_counts(n, own, 0.0);
            for credit in [Credit::Shared, Credit::Weight] {
                let found = summed(&turns, n, credit);
                let good = mean(&found, |i| turns[i].seat == 0 && turns[i].reward == 1.0);
                let bad = mean(&found, |i| turns[i].seat == 0 && turns[i].reward == 0.0);
                // The means of the other 99 episodes are 49/99 and 50/99.
                assert_close("good", &[good], &[50.0 / 99.0], 1e-12);
                assert_close("bad", &[bad], &[-50.0 / 99.0], 1e-12);
                // The second seat knows the reward before it speaks, and changes nothing.
                let second = mean(&found, |i| turns[i].seat == 1 && turns[i].reward == 1.0);
                assert_close("second", &[second], &[0.0], 1e-12);
            }
            for known in [0.5, 1.0] {
                turns = first_counts(n, own, known);
                for credit in [Credit::Without, Credit::Difference] {
                    let found = summed(&turns, n, credit);
                    let good = mean(&found, |i| turns[i].seat == 0 && turns[i].reward == 1.0);
                    let want = if credit == Credit::Without { 0.5 } else { known / 2.0 };
                    assert!((good - want).abs() < 0.01, "{credit:?}, {n}, {own}: {good}, {want}");
                }
            }
        }
    }

    #[test]
    fn values_of_all_seats_before_their_own_replies_would_take_the_advantage_away() {
        let turns = first_counts(2, 0.5, 0.0);
        for pair in turns.chunks(2) {
            assert_eq!(pair[0].reward - pair[0].before - pair[1].before, 0.0);
        }
    }

    /// Returns a network with parameters far from their initialization.
    fn wild(seats: usize, state: usize, seed: u64) -> Mixing {
        let network = Monotone::new(seats, state, 5, seed);
        let n = Mixing::Monotone(network.clone()).params().len() as u64;
        let params = (0..n).map(|i| (4.0 * uniform_number(seed ^ 7, i) - 2.0) as f32).collect();
        Mixing::Monotone(network.with_params(params).unwrap())
    }

    /// Returns episodes in which four seats speak in different orders, some of them twice or not at all.
    fn called(seed: u64) -> Vec<SeatValues> {
        let orders: [&[usize]; 6] = [&[0, 1], &[0, 2, 0], &[0, 1, 2, 3], &[3, 0], &[0, 3, 1], &[2]];
        let mut turns = Vec::new();
        for (episode, order) in orders.iter().enumerate() {
            for &seat in *order {
                let value = |k| 2.0 * uniform_number(seed, 2 * turns.len() as u64 + k) - 1.0;
                turns.push(turn(
                    episode,
                    seat,
                    f64::from(episode.is_multiple_of(2)),
                    [value(0), value(1)],
                ));
            }
        }
        turns
    }

    #[test]
    fn nothing_after_a_reply_changes_what_its_reward_is_compared_with() {
        let states: BTreeMap<usize, Vec<f64>> = (0..6).map(|e| (e, vec![0.3 * e as f64])).collect();
        for (seed, credit) in (0..8).flat_map(|seed| WITH_REWARD.map(|credit| (seed, credit))) {
            let mixing = if seed == 0 { Mixing::Sum } else { wild(4, 1, seed) };
            let states = if seed == 0 { BTreeMap::new() } else { states.clone() };
            let turns = called(seed);
            let advantages = |turns: &[SeatValues]| -> Vec<f64> {
                let mixed = mixed_turns(turns, 4, &states);
                mixed.iter().map(|turn| turn.advantage(&mixing, credit)).collect()
            };
            let before = advantages(&turns);
            for at in 0..turns.len() {
                // The reply of this turn, and the values of all later ones of its episode.
                let mut other = turns.clone();
                other[at].after += 5.0;
                let later = |i: &usize| *i > at && turns[*i].episode == turns[at].episode;
                for i in (0..turns.len()).filter(later) {
                    (other[i].before, other[i].after) = (7.0, -7.0);
                }
                let (ours, theirs) = (before[at], advantages(&other)[at]);
                assert!((ours - theirs).abs() < 1e-12, "{credit:?}, seed {seed}, {at}");
                // Other seats are called after it.
                let mut other = turns.clone();
                for i in (0..turns.len()).filter(later) {
                    other[i].seat = (turns[i].seat + 1) % 4;
                }
                let called = advantages(&other)[at];
                assert!((ours - called).abs() < 1e-12, "{credit:?}, seed {seed}, {at}");
                // No later turn.
                let kept = |(i, turn): (usize, SeatValues)| (!later(&i)).then_some(turn);
                let shorter: Vec<SeatValues> =
                    turns.iter().cloned().enumerate().filter_map(kept).collect();
                assert!((ours - advantages(&shorter)[at]).abs() < 1e-12, "{credit:?}, {at}");
            }
        }
    }

    #[test]
    fn a_router_has_the_same_baseline_whomever_it_calls() {
        // Seat 0 calls seat 1, which solves the task, or seat 2, which does not.
        let episode = |episode: usize| {
            let right = episode.is_multiple_of(2);
            let reward = f64::from(right);
            [
                turn(episode, 0, reward, [-0.3; 2]),
                turn(episode, 2 - usize::from(right), reward, [reward - 0.1; 2]),
            ]
        };
        let turns: Vec<SeatValues> = (0..40).flat_map(episode).collect();
        let found = summed(&turns, 3, Credit::Shared);
        let baseline = |i: usize| turns[i].reward - found[i];
        assert_close("baseline", &[baseline(0)], &[baseline(2)], 1e-12);
        assert_close("advantages", &[found[0], found[2]], &[0.5, -0.5], 1e-12);
    }

    #[test]
    fn voters_with_one_critic_have_the_same_baseline_at_every_turn() {
        // Equal prompts have equal values, a fifth of the expected reward each.
        let episode = |e: usize| (0..5).map(move |seat| turn(e, seat, (e % 2) as f64, [0.1; 2]));
        let turns: Vec<SeatValues> = (0..8).flat_map(episode).collect();
        for credit in WITH_REWARD {
            let found = summed(&turns, 5, credit);
            let baselines: Vec<f64> = (0..40).map(|i| turns[i].reward - found[i]).collect();
            assert_close("baselines", &baselines, &[0.5; 40], 1e-12);
        }
    }

    #[test]
    fn the_gain_of_separate_agents_is_their_own_success() {
        // Six agents, each of which earns the team a sixth with its own success.
        let success = |episode: usize, seat: usize| f64::from((episode >> seat) & 1 == 1);
        let episode = |e: usize| {
            let reward = (0..6).map(|seat| success(e, seat)).sum::<f64>() / 6.0;
            (0..6).map(move |seat| {
                turn(e, seat, reward, [1.0 / 12.0, (0.5 + success(e, seat) - 0.5) / 6.0])
            })
        };
        let turns: Vec<SeatValues> = (0..64).flat_map(episode).collect();
        for credit in [Credit::Difference, Credit::Tokens] {
            let found = summed(&turns, 6, credit);
            let want: Vec<f64> =
                turns.iter().map(|of| (success(of.episode, of.seat) - 0.5) / 6.0).collect();
            assert_close("own success", &found, &want, 1e-12);
        }
    }

    /// Returns the correlation of two columns.
    fn correlation(pairs: &[(f64, f64)]) -> f64 {
        let n = pairs.len() as f64;
        let (x, y) = pairs.iter().fold((0.0, 0.0), |(x, y), pair| (x + pair.0 / n, y + pair.1 / n));
        let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
            pairs.iter().map(|pair| of(pair.0 - x, pair.1 - y)).sum()
        };
        sum(&|x, y| x * y) / (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt()
    }

    #[test]
    fn with_exact_values_the_shared_reward_tells_an_agents_success_from_its_team_mates_by_the_root_of_their_number()
     {
        for n in [2, 3, 4, 6, 9] {
            let success = |e: usize, seat: usize| f64::from((e >> seat) & 1 == 1);
            let episode = |e: usize| {
                let reward = (0..n).map(|seat| success(e, seat)).sum::<f64>() / n as f64;
                let value = 0.5 / n as f64;
                (0..n).map(move |seat| turn(e, seat, reward, [value, success(e, seat) / n as f64]))
            };
            let turns: Vec<SeatValues> = (0..1 << n).flat_map(episode).collect();
            for (credit, other) in [
                (Credit::Shared, n),
                (Credit::Weight, n),
                // The noise of agents that have spoken is known: only the later ones are left.
                (Credit::Without, 0),
                (Credit::Difference, 1),
                (Credit::Tokens, 1),
            ] {
                // Without replies, the value after one is the value before it.
                let turns = turns.iter().map(|turn| {
                    let after = if credit.knows_replies() { turn.after } else { turn.before };
                    SeatValues { after, ..*turn }
                });
                let turns: Vec<SeatValues> = turns.collect();
                let found = summed(&turns, n, credit);
                for seat in 0..n {
                    let its = turns.iter().zip(&found).filter(|(turn, _)| turn.seat == seat);
                    let pairs: Vec<_> =
                        its.map(|(turn, &a)| (a, success(turn.episode, seat))).collect();
                    let noisy = if other == 0 { n - seat } else { other };
                    let want = 1.0 / (noisy as f64).sqrt();
                    let got = correlation(&pairs);
                    assert!((got - want).abs() < 0.01, "{credit:?}, {seat} of {n}: {got}, {want}");
                }
            }
        }
    }

    #[test]
    fn a_gain_has_the_sign_of_what_the_agents_own_value_gains_in_every_mixer() {
        for seed in 1..20 {
            let (mixing, states) = (wild(4, 1, seed), BTreeMap::from([(0, vec![0.7])]));
            let turns = called(seed);
            for (turn, mixed) in turns.iter().zip(mixed_turns(&turns, 4, &states)) {
                let state = vec![0.7];
                let mixed = MixedTurn { state, ..mixed };
                let gain = mixed.advantage(&mixing, Credit::Difference);
                let own = turn.after - turn.before;
                assert!(gain * own >= -1e-12, "seed {seed}: {gain}, {own}");
            }
        }
    }

    #[test]
    fn advantages_have_the_unit_of_rewards_and_no_value_may_move_between_seats_that_all_speak() {
        let everybody = |seed: u64| -> Vec<SeatValues> {
            let number = |i: usize| 2.0 * uniform_number(seed, i as u64) - 1.0;
            let of = |i: usize| {
                turn(i / 3, i % 3, number(9 * (i / 3)), [number(3 * i + 1), number(3 * i + 2)])
            };
            (0..24).map(of).collect()
        };
        for (seed, credit) in (0..5).flat_map(|seed| WITH_REWARD.map(|credit| (seed, credit))) {
            let turns = everybody(seed);
            let before = summed(&turns, 3, credit);
            let scaled: Vec<_> = turns
                .iter()
                .map(|t| {
                    turn(t.episode, t.seat, -40.0 * t.reward, [-40.0 * t.before, -40.0 * t.after])
                })
                .collect();
            let want: Vec<f64> = before.iter().map(|a| -40.0 * a).collect();
            assert_close("unit", &summed(&scaled, 3, credit), &want, 1e-9);
            // The critic of seat 0 gives what that of seat 2 takes.
            let moved: Vec<_> = turns
                .iter()
                .map(|t| {
                    let by = [5.0, 0.0, -5.0][t.seat];
                    turn(t.episode, t.seat, t.reward, [t.before + by, t.after + by])
                })
                .collect();
            assert_close("moved", &summed(&moved, 3, credit), &before, 1e-9);
        }
    }

    #[test]
    fn the_last_of_a_chain_is_credited_and_the_first_is_not_if_only_the_last_counts() {
        // The second agent is right or wrong, whatever the first one says.
        let episode = |e: usize| {
            let (reward, said) = ((e % 2) as f64, ((e / 2) % 2) as f64);
            [turn(e, 0, reward, [0.2, 0.2 + 0.0 * said]), turn(e, 1, reward, [0.3, reward - 0.2])]
        };
        let turns: Vec<SeatValues> = (0..80).flat_map(episode).collect();
        for credit in [Credit::Shared, Credit::Weight, Credit::Without, Credit::Difference] {
            let found = summed(&turns, 2, credit);
            for said in [0, 1] {
                let first =
                    mean(&found, |i| turns[i].seat == 0 && (turns[i].episode / 2) % 2 == said);
                assert!(first.abs() < 0.02, "{credit:?}: {first}");
            }
            let last = mean(&found, |i| turns[i].seat == 1 && turns[i].reward == 1.0);
            assert!((last - 0.5).abs() < 0.02, "{credit:?}: {last}");
        }
    }

    #[test]
    fn a_seat_that_speaks_again_has_the_mean_of_its_values() {
        let turns =
            [turn(0, 0, 1.0, [0.1, 0.2]), turn(0, 1, 1.0, [0.3, 0.4]), turn(0, 0, 0.0, [0.5, 0.6])];
        let mixed = mixed_turns(&turns, 2, &BTreeMap::from([(0, vec![9.0])]));
        assert_eq!(mixed[0].before, [0.1, 0.0], "the second seat speaks in no other episode");
        assert_eq!((&mixed[1].before, &mixed[1].after), (&vec![0.2, 0.3], &vec![0.2, 0.4]));
        assert_eq!((&mixed[2].before, &mixed[2].after), (&vec![0.35, 0.4], &vec![0.4, 0.4]));
        assert_eq!(mixed[2].sources, [vec![0, 2], vec![1]]);
        assert!(mixed.iter().all(|turn| turn.state == [9.0]));
        assert_close("reward", &[mixed[0].reward], &[2.0 / 3.0], 1e-15);
    }

    #[test]
    fn a_team_of_one_seat_is_compared_with_its_own_value() {
        let turns = [turn(0, 0, 1.0, [0.25, 0.75]), turn(1, 0, 0.0, [0.25, 0.125])];
        for credit in WITH_REWARD {
            assert_eq!(summed(&turns, 1, credit), [0.75, -0.25]);
        }
        assert_eq!(summed(&turns, 1, Credit::Difference), [0.5, -0.125]);
    }
}

//! Pairs of an agent's replies to a task, ordered by their rewards, and replies with a label by their reward.

use maverl_kernels::advantage::{Grouping, Moments, Singleton};

use super::{GroupSummary, Terms, rounding_of, summary};
use crate::algo::Sample;
use crate::credit::{Estimators, dense};

/// A better and a worse reply of an agent to a task. A reply is all that the agent says in an episode: one or more turns,
/// as indices of samples. A reply with a label has no other: one of the lists is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyPair {
    /// Turns of the better reply, or of a good one.
    pub chosen: Vec<usize>,
    /// Turns of the worse reply, or of a bad one.
    pub rejected: Vec<usize>,
}

impl ReplyPair {
    /// Returns all turns, those of the better reply first.
    pub fn turns(&self) -> impl Iterator<Item = usize> {
        self.chosen.iter().chain(&self.rejected).copied()
    }
}

/// Pairs of a step, and the groups that they are taken from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Paired {
    /// Pairs, at most one of each group, in the order of groups; or replies with a label, in the order of their first turns.
    pub(crate) pairs: Vec<ReplyPair>,
    /// Statistics of the groups.
    pub(crate) groups: GroupSummary,
    /// Terms of the choice, for the record.
    pub(crate) terms: Terms,
}

impl Paired {
    /// Returns 1 for each sample of a better reply, -1 for each of a worse one, and 0 for the others. `[N]`
    pub(crate) fn signs(&self) -> Vec<f64> {
        let mut signs = vec![0.0; self.terms.groups.len()];
        for ReplyPair { chosen, rejected } in &self.pairs {
            chosen.iter().for_each(|&row| signs[row] = 1.0);
            rejected.iter().for_each(|&row| signs[row] = -1.0);
        }
        signs
    }
}

/// Returns the pairs of a step. Online DPO, [2402.04792](https://arxiv.org/abs/2402.04792) §3, with the reward in place of
/// an annotator.
///
/// ```text
/// group   the replies of an agent to a task
/// r(y)    mean reward of the turns of reply y
/// pair    (argmax r, argmin r)                       none if all rewards of the group are equal, up to rounding
/// ```
///
/// - Of rewards that are equal up to rounding, the reply of the first episode is taken.
/// - With two replies these are the pairs of verl's SPIN recipe (`compute_onlinedpo_pref`), which also makes a pair of two
///   equal rewards; with more, verl compares neighbors (first and second, third and fourth).
pub(crate) fn pairs_of_step(samples: &[Sample], estimators: &Estimators) -> Paired {
    let rewards: Vec<f64> = samples.iter().map(|sample| sample.reward - sample.baseline).collect();
    let units = dense(samples.iter().map(|sample| (sample.episode, sample.seat)));
    let groups = dense(samples.iter().map(|sample| (&sample.task, sample.seat)));
    let (values, moments) = estimators.units(&rewards, &Grouping::from_units(&units, &groups));
    let mut pairs = Vec::new();
    for (group, moments) in moments.iter().enumerate() {
        let rows = (0..samples.len()).filter(|&row| groups[row] == group);
        let ends = rows.clone().map(|row| values[row]);
        let (low, high) = (ends.clone().fold(f64::MAX, f64::min), ends.fold(f64::MIN, f64::max));
        let [best, worst] = [high, low]
            .map(|end| rows.clone().find(|&row| (values[row] - end).abs() <= rounding_of(end)));
        if let (Some(best), Some(worst), true) = (best, worst, moments.has_spread()) {
            let [chosen, rejected] = [best, worst]
                .map(|of| rows.clone().filter(|&row| units[row] == units[of]).collect());
            pairs.push(ReplyPair { chosen, rejected });
        }
    }
    with_pairs(samples, pairs, (values, groups, moments))
}

/// Returns the replies of a step, each with a label by its reward, for a loss of single replies (KTO).
///
/// ```text
/// r(y)   mean reward of the turns of reply y
/// good   r(y) ≥ threshold, up to rounding;  bad: all others
/// ```
///
/// A step has something to learn from, whatever its labels are.
pub(crate) fn labeled_replies(
    samples: &[Sample],
    threshold: f64,
    estimators: &Estimators,
) -> Paired {
    let rewards: Vec<f64> = samples.iter().map(|sample| sample.reward - sample.baseline).collect();
    let units = dense(samples.iter().map(|sample| (sample.episode, sample.seat)));
    let groups = dense(samples.iter().map(|sample| (&sample.task, sample.seat)));
    let (values, moments) = estimators.units(&rewards, &Grouping::from_units(&units, &groups));
    let mut replies: Vec<Vec<usize>> = vec![Vec::new(); units.iter().max().map_or(0, |n| n + 1)];
    for (row, &unit) in units.iter().enumerate() {
        replies[unit].push(row);
    }
    let least = threshold - rounding_of(threshold);
    let replies = replies.into_iter().map(|turns| labeled_reply(values[turns[0]] >= least, turns));
    let replies: Vec<ReplyPair> = replies.collect();
    let mut found = with_pairs(samples, replies, (values, groups, moments));
    found.groups.flat = samples.is_empty();
    found
}

/// Returns a reply alone, by its label.
fn labeled_reply(is_good: bool, turns: Vec<usize>) -> ReplyPair {
    let (chosen, rejected) = if is_good { (turns, Vec::new()) } else { (Vec::new(), turns) };
    ReplyPair { chosen, rejected }
}

/// Returns pairs with the statistics of their groups. The values are rewards of replies and groups of samples, `[N]`, and moments
/// of groups.
fn with_pairs(
    samples: &[Sample],
    pairs: Vec<ReplyPair>,
    (units, groups, moments): (Vec<f64>, Vec<usize>, Vec<Moments>),
) -> Paired {
    let summary = summary(samples, &groups, &moments, Singleton::Zero);
    let unwhitened = vec![0.0; samples.len()];
    let terms = Terms { units, groups, moments, unwhitened, ..Terms::default() };
    Paired { pairs, groups: summary, terms }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::samples;
    use crate::algo::testing::{episode, plan, turn};
    use crate::credit::CPU;
    use crate::trajectory::{Episode, Fault, FaultKind, Outcome, RewardOf, RewardPart};

    /// Returns the pairs of one agent's single turns with these rewards on one task, as indices of episodes.
    fn of_rewards(rewards: &[f64]) -> Vec<(usize, usize)> {
        let one = |(index, reward): (usize, &f64)| {
            episode("p", index as u32, *reward, vec![turn("t/a", 0)])
        };
        let episodes: Vec<Episode> = rewards.iter().enumerate().map(one).collect();
        chosen(&episodes, &["t/a"])
    }

    /// Returns the episodes of each pair of agents whose turns are trained on.
    fn chosen(episodes: &[Episode], seats: &[&str]) -> Vec<(usize, usize)> {
        let plan = plan(&seats.iter().map(|seat| (*seat, true)).collect::<Vec<_>>());
        let rows = samples(episodes, &plan);
        let of = |rows_of: &[usize]| rows[rows_of[0]].episode;
        let found = pairs_of_step(&rows, &CPU);
        assert_eq!(found.groups.flat, found.pairs.is_empty());
        found.pairs.iter().map(|pair| (of(&pair.chosen), of(&pair.rejected))).collect()
    }

    #[test]
    fn a_group_gives_its_best_and_its_worst_reply() {
        /// Rewards of a group, and its pairs.
        type Case = (&'static [f64], &'static [(usize, usize)]);
        let cases: [Case; 20] = [
            (&[0.0, 1.0], &[(1, 0)]),
            (&[1.0, 0.0], &[(0, 1)]),
            (&[0.3, 0.9, -0.2, 0.5], &[(1, 2)]),
            // Of equal rewards, the first.
            (&[1.0, 1.0, 0.0, 0.0], &[(0, 2)]),
            (&[0.0, 1.0, 0.0, 1.0], &[(1, 0)]),
            (&[0.0, 0.0, 1.0], &[(2, 0)]),
            (&[-1.0, -2.0], &[(0, 1)]),
            // Nothing to prefer.
            (&[1.0, 1.0], &[]),
            (&[0.0, 0.0, 0.0], &[]),
            (&[0.1 + 0.2, 0.3], &[]),
            (&[1.0], &[]),
            (&[-0.0, 0.0], &[]),
            // Rounding is no difference, and neither is the sign of zero.
            (&[0.3, 0.1 + 0.2, 0.0], &[(0, 2)]),
            (&[0.1 + 0.2, 0.3, 0.0], &[(0, 2)]),
            (&[1.0, 0.1 + 0.2, 0.3], &[(0, 1)]),
            (&[1.0, 0.0, -0.0], &[(0, 1)]),
            (&[1.0, -0.0, 0.0], &[(0, 1)]),
            // The largest rewards, and differences as small as those of penalties beside them.
            (&[1e9, -1e9, 0.0], &[(0, 1)]),
            (&[1e6, 1e6 + 0.01], &[(1, 0)]),
            (&[0.0, 1e-7], &[(1, 0)]),
        ];
        for (rewards, pairs) in cases {
            assert_eq!(of_rewards(rewards), pairs, "{rewards:?}");
        }
    }

    #[test]
    fn replies_are_good_from_the_threshold_and_each_counts() {
        let turns = || vec![turn("t/a", 0), turn("t/b", 1)];
        let episodes = [
            episode("p", 0, 0.5, turns()),
            episode("p", 1, 0.3, turns()),
            episode("q", 0, 0.0, turns()),
            episode("q", 1, 0.0, vec![turn("t/a", 0)]),
        ];
        let plan = plan(&[("t/a", true), ("t/b", true)]);
        let rows = samples(&episodes, &plan);
        // Rounding is no difference.
        let found = labeled_replies(&rows, 0.1 + 0.2, &CPU);
        assert_eq!(found.signs(), [1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0]);
        assert_eq!(found.pairs.len(), 7);
        let sizes = |pair: &ReplyPair| pair.chosen.len() + pair.rejected.len();
        assert!(found.pairs.iter().all(|pair| sizes(pair) == 1));
        assert!(!found.groups.flat);
        assert!(labeled_replies(&rows, -1.0, &CPU).signs().iter().all(|sign| *sign == 1.0));
        let long = [episode("p", 0, 1.0, (0..3).map(|place| turn("t/a", place)).collect())];
        let rows = samples(&long, &plan);
        let found = labeled_replies(&rows, 0.5, &CPU);
        assert_eq!(found.pairs, [ReplyPair { chosen: vec![0, 1, 2], rejected: vec![] }]);
    }

    #[test]
    fn tasks_and_agents_are_not_mixed() {
        let turns = || vec![turn("t/a", 0), turn("t/b", 1)];
        let episodes = [
            episode("p", 0, 1.0, turns()),
            episode("q", 0, 0.5, turns()),
            episode("p", 1, 0.0, turns()),
            episode("q", 1, 0.7, turns()),
        ];
        assert_eq!(chosen(&episodes, &["t/a", "t/b"]), [(0, 2), (0, 2), (3, 1), (3, 1)]);
    }

    #[test]
    fn unscored_episodes_and_seats_that_are_not_trained_make_no_pair() {
        let turns = || vec![turn("t/a", 0), turn("t/b", 1)];
        let mut lost = episode("p", 0, 1.0, turns());
        lost.outcome = Outcome::Unscored(Fault::new(FaultKind::Timeout, "600 s"));
        let episodes = [lost, episode("p", 1, 0.5, turns()), episode("p", 2, 0.0, turns())];
        assert_eq!(chosen(&episodes, &["t/a", "t/b"]), [(1, 2), (1, 2)]);
        assert_eq!(chosen(&episodes, &["t/b"]), [(1, 2)]);
        assert_eq!(chosen(&episodes[..2], &["t/a", "t/b"]), []);
    }

    #[test]
    fn an_agent_that_is_silent_in_the_best_episode_is_paired_among_the_others() {
        let both = || vec![turn("t/a", 0), turn("t/b", 1)];
        let episodes = [
            episode("p", 0, 1.0, vec![turn("t/a", 0)]),
            episode("p", 1, 0.5, both()),
            episode("p", 2, 0.0, both()),
        ];
        assert_eq!(chosen(&episodes, &["t/a", "t/b"]), [(0, 2), (1, 2)]);
    }

    #[test]
    fn the_order_of_episodes_changes_no_pair_of_different_rewards() {
        let rewards = [0.4, -0.3, 0.9, 0.1, 0.7];
        for turned in 0..5 {
            let order: Vec<usize> = (0..5).map(|i| (i + turned) % 5).collect();
            let found = of_rewards(&order.iter().map(|&i| rewards[i]).collect::<Vec<_>>());
            let found: Vec<_> = found.iter().map(|&(a, b)| (order[a], order[b])).collect();
            assert_eq!(found, [(2, 1)], "{turned}");
        }
    }

    #[test]
    fn a_reply_is_all_turns_of_an_agent_in_an_episode_and_counts_with_their_mean() {
        let plan = plan(&[("t/a", true)]);
        let paid =
            |turn, value| RewardPart { name: "own".to_owned(), value, of: RewardOf::Turn(turn) };
        let turns = |n| (0..n).map(|place| turn("t/a", place)).collect();
        let mut long = episode("p", 0, 0.0, turns(3));
        long.rewards = vec![paid(0, 0.9), paid(1, 0.0), paid(2, 0.0)];
        let mut short = episode("p", 1, 0.0, turns(1));
        short.rewards = vec![paid(0, 0.5)];
        let rows = samples(&[long, short], &plan);
        let found = pairs_of_step(&rows, &CPU);
        assert_eq!(found.pairs, [ReplyPair { chosen: vec![3], rejected: vec![0, 1, 2] }]);
        assert_eq!(found.signs(), [-1.0, -1.0, -1.0, 1.0]);
        assert!((found.terms.units[0] - 0.3).abs() < 1e-12 && found.terms.units[3] == 0.5);
    }
}

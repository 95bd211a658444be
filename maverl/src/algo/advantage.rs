//! Group-relative advantages: typed keys become dense ids, the arithmetic is `maverl_kernels::advantage`.

use std::collections::BTreeMap;

use maverl_kernels::advantage::{GroupRelative, GroupStats, Singleton as Alone, group_relative};
use serde::{Deserialize, Serialize};

use crate::algo::Sample;
use crate::config::{GroupBy, Singleton};
use crate::plan::AlgorithmPlan;

/// A standard deviation up to this times the mean (or 1, if that is more) is the rounding of equal rewards.
const ROUNDING: f64 = 1e-9;

/// The advantage of each sample, and what the groups they were taken over look like.
#[derive(Debug, Clone, PartialEq)]
pub struct Advantages {
    /// One per sample. `[N]`
    pub values: Vec<f64>,
    /// The groups.
    pub groups: GroupSummary,
}

/// What the groups of a step look like.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct GroupSummary {
    /// How many groups there are.
    pub count: usize,
    /// Units (episodes or turns) of the smallest group.
    pub size_min: usize,
    /// Groups of one unit, which has nothing to be compared with.
    pub singletons: usize,
    /// Share of the groups in which every unit has the same reward.
    pub zero_std_frac: f64,
    /// Share of the groups all of whose episodes solved the task.
    pub all_good_frac: f64,
    /// Share of the groups none of whose episodes solved the task.
    pub all_bad_frac: f64,
    /// There is nothing to learn from: every advantage is 0, up to rounding.
    pub flat: bool,
}

/// The advantage of each sample relative to its group.
///
/// ```text
/// GRPO      unit = episode, group = task           A = (mean reward of the episode's rows − μ) / (σ + ε)
/// Dr. MAS   unit = row,     group = (task, seat)   A = (reward of the row − μ) / (σ + ε)
/// ```
///
/// - `σ` is the sample deviation (n − 1), over units; `normalize_std = false` leaves the division out.
/// - Only samples count: the rows of a frozen seat are in no statistic.
/// - A group of one has advantage 0, or its raw reward with `singleton = "raw"`.
pub fn advantages(samples: &[Sample], algorithm: &AlgorithmPlan) -> Advantages {
    let values: Vec<f64> = samples.iter().map(|sample| sample.reward).collect();
    let (unit, group) = match algorithm.group_by {
        GroupBy::Task => {
            (dense(samples.iter().map(|s| s.episode)), dense(samples.iter().map(|s| &s.task)))
        }
        GroupBy::TaskSeat => {
            ((0..samples.len()).collect(), dense(samples.iter().map(|s| (&s.task, s.seat))))
        }
    };
    let options = GroupRelative {
        eps: algorithm.advantage_eps,
        normalize_std: algorithm.normalize_std,
        singleton: match algorithm.singleton {
            Singleton::Zero => Alone::Zero,
            Singleton::Raw => Alone::Raw,
        },
    };
    let (values, stats) = group_relative(&values, &unit, &group, &options);
    let groups = summary(samples, &group, &stats, algorithm.singleton);
    Advantages { values, groups }
}

/// Numbers keys from 0 in the order in which they first appear.
fn dense<K: Ord>(keys: impl Iterator<Item = K>) -> Vec<usize> {
    let mut ids = BTreeMap::new();
    keys.map(|key| {
        let next = ids.len();
        *ids.entry(key).or_insert(next)
    })
    .collect()
}

fn summary(
    samples: &[Sample],
    group: &[usize],
    stats: &[GroupStats],
    singleton: Singleton,
) -> GroupSummary {
    let mut solved = vec![(false, false); stats.len()]; // (some are, some are not)
    for (sample, &group) in samples.iter().zip(group) {
        let (good, bad) = &mut solved[group];
        *(if sample.solved { good } else { bad }) = true;
    }
    let share = |n: usize| n as f64 / stats.len().max(1) as f64;
    let spread = |g: &GroupStats| g.std > ROUNDING * g.mean.abs().max(1.0);
    let teaches = |g: &GroupStats| match singleton {
        Singleton::Raw if g.size == 1 => g.mean != 0.0,
        _ => spread(g),
    };
    GroupSummary {
        count: stats.len(),
        size_min: stats.iter().map(|g| g.size).min().unwrap_or(0),
        singletons: stats.iter().filter(|g| g.size == 1).count(),
        zero_std_frac: share(stats.iter().filter(|g| !spread(g)).count()),
        all_good_frac: share(solved.iter().filter(|(_, bad)| !bad).count()),
        all_bad_frac: share(solved.iter().filter(|(good, _)| !good).count()),
        flat: !stats.iter().any(teaches),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::TaskKey;
    use crate::algo::testing::plan;

    fn sample(task: &str, episode: usize, seat: usize, reward: f64) -> Sample {
        Sample {
            episode,
            turn: 0,
            task: TaskKey { source: "test".to_owned(), id: task.to_owned() },
            seat,
            policy: 0,
            reward,
            solved: reward > 0.5,
        }
    }

    /// The golden batch of Dr. MAS: one task; t0: S 1, V 1; t1: S 0, V −0.1, S 0; t2: S 1, V 1, S 1.
    fn golden() -> Vec<Sample> {
        let rows = [
            (0, 0, 1.0),
            (0, 1, 1.0),
            (1, 0, 0.0),
            (1, 1, -0.1),
            (1, 0, 0.0),
            (2, 0, 1.0),
            (2, 1, 1.0),
            (2, 0, 1.0),
        ];
        rows.into_iter().map(|(episode, seat, reward)| sample("p", episode, seat, reward)).collect()
    }

    fn algorithm(group_by: GroupBy) -> AlgorithmPlan {
        AlgorithmPlan { group_by, ..plan(&[]).algorithm }
    }

    #[track_caller]
    fn assert_close(got: &[f64], want: &[f64]) {
        let close = |(got, want): (&f64, &f64)| (got - want).abs() < 1e-6;
        assert!(got.len() == want.len() && got.iter().zip(want).all(close), "{got:?}\n{want:?}");
    }

    #[test]
    fn dr_mas_agrees_with_the_reference() {
        let mut algorithm = algorithm(GroupBy::TaskSeat);
        let want =
            [0.730295, 0.577349, -1.095443, -1.154699, -1.095443, 0.730295, 0.577349, 0.730295];
        assert_close(&advantages(&golden(), &algorithm).values, &want);
        algorithm.normalize_std = false;
        let want = [0.4, 0.366667, -0.6, -0.733333, -0.6, 0.4, 0.366667, 0.4];
        assert_close(&advantages(&golden(), &algorithm).values, &want);
    }

    #[test]
    fn grpo_compares_episodes_not_rows() {
        let got = advantages(&golden(), &algorithm(GroupBy::Task));
        let (up, down) = (0.577349, -1.154699);
        assert_close(&got.values, &[up, up, down, down, down, up, up, up]);
        assert_eq!((got.groups.count, got.groups.size_min), (1, 3));
    }

    #[test]
    fn tasks_of_two_sources_with_one_id_are_two_groups() {
        let mut samples = vec![sample("p", 0, 0, 1.0), sample("p", 1, 0, 0.0)];
        samples[1].task.source = "other".to_owned();
        let got = advantages(&samples, &algorithm(GroupBy::TaskSeat));
        assert_eq!((got.groups.count, got.groups.singletons), (2, 2));
    }

    #[test]
    fn a_group_of_one_is_zero_or_raw() {
        let samples = [sample("p", 0, 0, 1.0)];
        let mut algorithm = algorithm(GroupBy::TaskSeat);
        let zero = advantages(&samples, &algorithm);
        assert_eq!((zero.values, zero.groups.singletons, zero.groups.flat), (vec![0.0], 1, true));
        algorithm.singleton = Singleton::Raw;
        let raw = advantages(&samples, &algorithm);
        assert_close(&raw.values, &[0.999999]);
        assert!(!raw.groups.flat);
    }

    #[test]
    fn a_step_is_flat_when_no_group_has_spread_rounding_aside() {
        let equal = |task: &str, reward: f64| {
            let task = task.to_owned();
            (0..7).map(move |episode| sample(&task, episode, 0, reward))
        };
        let mut samples: Vec<_> = equal("p", 0.1).chain(equal("q", 0.7)).collect();
        let got = advantages(&samples, &algorithm(GroupBy::TaskSeat)).groups;
        assert!(got.flat);
        assert_eq!((got.zero_std_frac, got.all_good_frac, got.all_bad_frac), (1.0, 0.5, 0.5));
        samples[0].reward = 0.0;
        let got = advantages(&samples, &algorithm(GroupBy::TaskSeat)).groups;
        assert!(!got.flat);
        assert_eq!(got.zero_std_frac, 0.5);
    }

    #[test]
    fn no_samples_give_no_advantages_and_a_flat_step() {
        let got = advantages(&[], &algorithm(GroupBy::Task));
        assert!(got.values.is_empty() && got.groups.flat);
    }
}

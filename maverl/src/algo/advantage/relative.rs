//! Advantages relative to a group.

use maverl_kernels::advantage::{GroupRelative, GroupStats, Singleton as Alone, group_relative};

use crate::config::{Baseline, Singleton};

/// A standard deviation up to this times the mean (or 1, if that is more) is the rounding of equal rewards.
pub(super) const ROUNDING: f64 = 1e-9;

/// What is compared with what: dense ids of the unit and of the group of each row. Both `[N]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grouping {
    /// Rows of one unit count once, with their mean.
    pub unit: Vec<usize>,
    /// A unit lies in one group.
    pub group: Vec<usize>,
}

/// How [`relative`] compares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Relative {
    /// What a unit is compared with.
    pub baseline: Baseline,
    /// The advantage of a group of one.
    pub singleton: Singleton,
    /// Divide by the deviation.
    pub normalize_std: bool,
    /// Added to the deviation.
    pub eps: f64,
}

/// The advantage of each row `[N]`, and the statistics of each group of `mean`.
///
/// ```text
/// u = mean of values over the rows of the unit
/// A = (u − b) / (σ + ε)
///
/// mean            b = μ                                 GRPO, 2402.03300 §4.1.2; Dr. MAS, 2602.08847 eq. 5
/// leave_one_out   b = mean of the others,
///                 u − b = n / (n − 1) · (u − μ)         RLOO, 2402.14740 §2
/// second_best     u − b = best − second best for the best unit, 0 for the others     2503.19595
/// none            b = 0
/// greedy, moving_average          b is in the values already, see [`baselines`](crate::algo::baselines)
/// ```
///
/// - Mean and deviation may be taken over different groups: the four variants of the ablation of Dr. MAS. A group of
///   the deviation in which all are equal, or which has one unit, then has no scale, and the advantage is 0.
/// - Of equal units the first is the best; it has an advantage of 0.
///
/// # Panics
///
/// If the lengths differ, or a unit lies in two groups.
pub fn relative(
    values: &[f64],
    mean: &Grouping,
    deviation: &Grouping,
    options: &Relative,
) -> (Vec<f64>, Vec<GroupStats>) {
    let units = unit_means(values, &mean.unit);
    let (_, stats) = statistics(values, mean);
    let scales = (mean != deviation).then(|| statistics(values, deviation).1);
    let tops = tops(&units, mean, stats.len());
    let advantages = (0..values.len()).map(|row| {
        let (unit, group) = (mean.unit[row], mean.group[row]);
        let (value, own) = (units[unit], stats[group]);
        let alone = own.size == 1 && options.baseline.of_group();
        let centred = match options.baseline {
            _ if alone && options.singleton == Singleton::Zero => return 0.0,
            _ if alone => value,
            Baseline::None | Baseline::Greedy | Baseline::MovingAverage => value,
            Baseline::Mean => value - own.mean,
            Baseline::LeaveOneOut => (value - own.mean) * own.size as f64 / (own.size - 1) as f64,
            Baseline::SecondBest => tops[group].lead(unit),
        };
        let std = match &scales {
            None if own.size == 1 => 1.0,
            None => own.std,
            Some(scales) => match scales[deviation.group[row]] {
                scale if spread(&scale) => scale.std,
                scale if scale.size == 1 && options.singleton == Singleton::Raw => 1.0,
                _ if options.normalize_std => return 0.0,
                _ => 1.0,
            },
        };
        if options.normalize_std { centred / (std + options.eps) } else { centred }
    });
    (advantages.collect(), stats)
}

/// Its units are not all equal, rounding aside.
pub(super) fn spread(group: &GroupStats) -> bool {
    group.std > ROUNDING * group.mean.abs().max(1.0)
}

fn statistics(values: &[f64], by: &Grouping) -> (Vec<f64>, Vec<GroupStats>) {
    let options = GroupRelative { eps: 0.0, normalize_std: false, singleton: Alone::Zero };
    group_relative(values, &by.unit, &by.group, &options)
}

fn unit_means(values: &[f64], unit: &[usize]) -> Vec<f64> {
    let mut sums = vec![(0.0, 0_usize); unit.iter().max().map_or(0, |u| u + 1)];
    for (value, &u) in values.iter().zip(unit) {
        sums[u].0 += value;
        sums[u].1 += 1;
    }
    sums.into_iter().map(|(sum, rows)| sum / rows.max(1) as f64).collect()
}

/// The best unit of a group, and how good it and the next are.
#[derive(Clone, Copy, Default)]
struct Top {
    best: Option<(usize, f64)>,
    second: Option<f64>,
}

impl Top {
    fn add(&mut self, unit: usize, value: f64) {
        match self.best {
            Some((_, best)) if value <= best => {
                self.second = Some(self.second.map_or(value, |second| second.max(value)));
            }
            best => {
                self.second = best.map(|(_, value)| value);
                self.best = Some((unit, value));
            }
        }
    }

    fn lead(&self, unit: usize) -> f64 {
        match (self.best, self.second) {
            (Some((best, value)), Some(second)) if best == unit => value - second,
            _ => 0.0,
        }
    }
}

fn tops(units: &[f64], by: &Grouping, groups: usize) -> Vec<Top> {
    let mut tops = vec![Top::default(); groups];
    let mut seen = vec![false; units.len()];
    for (&unit, &group) in by.unit.iter().zip(&by.group) {
        if !std::mem::replace(&mut seen[unit], true) {
            tops[group].add(unit, units[unit]);
        }
    }
    tops
}

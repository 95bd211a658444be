//! Advantages relative to a group.

use super::moments::{group_moments, weighted_moments};
use super::{Grouping, Moments, Singleton, assert_same_length};

/// Reference that a unit's value is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Baseline {
    /// Nothing.
    None,
    /// The mean of its group.
    Mean,
    /// The mean of the others.
    LeaveOneOut,
    /// The second best of its group, for the best; the others have no advantage. There is no kernel of it.
    SecondBest,
}

/// Options of [`relative_advantages`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Relative {
    /// Reference that a unit's value is compared with.
    pub baseline: Baseline,
    /// Divide by the deviation.
    pub normalize_std: bool,
    /// Added to the deviation.
    pub eps: f64,
    /// The advantage of a group of one.
    pub singleton: Singleton,
}

/// The value of each row's unit `[N]`, and the moments of each group over its units, `[groups]`: the terms of [`relative_advantages`].
///
/// # Panics
///
/// If the lengths differ.
pub fn unit_values(values: &[f64], by: &Grouping) -> (Vec<f64>, Vec<Moments>) {
    assert_same_length("units", values.len(), by.len());
    let units = unit_means(values, by);
    let stats = group_moments(&units, &by.groups);
    ((0..values.len()).map(|row| units[by.unit_of_row(row)]).collect(), stats)
}

/// The advantage of each row `[N]`, and the moments of each group over its units, `[groups]`.
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
/// ```
///
/// - `σ` is the sample deviation (n − 1) over units, as in the reference implementation of Dr. MAS; the paper has n.
/// - `deviation` takes `σ` over other groups than the mean: the four variants of the ablation of Dr. MAS. A group of it
///   in which all are equal, or which has one unit, has no scale, and the advantage is 0. So it is in an own group in which
///   all are equal if `ε` is 0.
/// - A group of one unit follows [`Singleton`]; its moments still are its own.
/// - Of equal units the first is the best; its advantage is 0.
///
/// # Panics
///
/// If the lengths differ.
pub fn relative_advantages(
    values: &[f64],
    by: &Grouping,
    deviation: Option<&Grouping>,
    options: &Relative,
) -> (Vec<f64>, Vec<Moments>) {
    assert_same_length("relative", values.len(), by.len());
    let units = unit_means(values, by);
    let stats = group_moments(&units, &by.groups);
    let scales = deviation.map(|other| {
        assert_same_length("relative", values.len(), other.len());
        (other, group_moments(&unit_means(values, other), &other.groups))
    });
    let leads = match options.baseline {
        Baseline::SecondBest => unit_leads(&units, by),
        _ => Vec::new(),
    };
    let advantages = (0..values.len()).map(|row| {
        let unit = by.unit_of_row(row);
        let own = &stats[by.group_ids()[row] as usize];
        let lead = leads.get(unit).copied().unwrap_or(0.0);
        let scale = scales.as_ref().map(|(by, stats)| &stats[by.group_ids()[row] as usize]);
        options.unit_advantage(units[unit], lead, own, scale)
    });
    (advantages.collect(), stats)
}

impl Relative {
    /// The advantage of a unit of this value. `scale` is the group of the deviation, where it is another one.
    fn unit_advantage(&self, value: f64, lead: f64, own: &Moments, scale: Option<&Moments>) -> f64 {
        let alone = own.n == 1.0 && self.baseline != Baseline::None;
        if alone && self.singleton == Singleton::Zero {
            return 0.0;
        }
        let centered = match self.baseline {
            _ if alone => value,
            Baseline::None => value,
            Baseline::Mean => value - own.mean,
            Baseline::LeaveOneOut => (value - own.mean) * own.n / (own.n - 1.0),
            Baseline::SecondBest => lead,
        };
        if !self.normalize_std {
            return centered;
        }
        let std = match scale {
            None if own.n == 1.0 => 1.0,
            None if self.eps == 0.0 && !own.has_spread() => return 0.0,
            None => own.std(),
            Some(scale) if scale.has_spread() => scale.std(),
            Some(scale) if scale.n == 1.0 && self.singleton == Singleton::Raw => 1.0,
            Some(_) => return 0.0,
        };
        centered / (std + self.eps)
    }
}

/// The value of each unit: the mean over its rows.
fn unit_means(values: &[f64], by: &Grouping) -> Vec<f64> {
    match &by.units {
        None => values.to_vec(),
        Some(units) => {
            let moments = weighted_moments(units, |row| (values[row], 1.0));
            moments.into_iter().map(|unit| unit.mean).collect()
        }
    }
}

/// Lead of the best unit of each group over the second best; 0 for the others. `[units]`
fn unit_leads(units: &[f64], by: &Grouping) -> Vec<f64> {
    let mut leads = vec![0.0; units.len()];
    for group in 0..by.groups.group_count() {
        let (mut best, mut second): (Option<usize>, Option<f64>) = (None, None);
        for unit in by.groups.range_of_group(group).map(|place| by.groups.row_at(place)) {
            match best {
                Some(first) if units[unit] <= units[first] => {
                    second = Some(second.map_or(units[unit], |second| second.max(units[unit])));
                }
                _ => {
                    second = best.map(|first| units[first]);
                    best = Some(unit);
                }
            }
        }
        if let (Some(best), Some(second)) = (best, second) {
            leads[best] = units[best] - second;
        }
    }
    leads
}

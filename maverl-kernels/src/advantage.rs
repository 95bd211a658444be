//! Advantages: how much better a row did than the ones it is compared with. Pure functions of dense ids.
//!
//! [`group_relative`] takes f64 and ids as they come. [`Estimate`] is every estimator over arrays of f32 whose rows were
//! sorted into [`Segments`] once, with sums in f64: on the [`Cpu`], or with the feature `cuda` on a GPU.

mod estimate;
mod moments;
mod relative;
mod scan;
mod segments;

pub use estimate::{Cpu, Estimate, Steps};
pub use moments::Moments;
pub use relative::{Baseline, Relative};
pub use scan::{GaeParams, GaeSteps, RaggedRows};
pub use segments::{Grouping, Segments};

#[cfg(all(test, feature = "cuda"))]
pub(crate) use estimate::tests as estimate_tests;
#[cfg(feature = "cuda")]
pub(crate) use estimate::{WHITEN_EPS, same};

/// What a group of one unit, which has nothing to be compared with, is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Singleton {
    /// No advantage.
    Zero,
    /// Its raw value, as with mean 0 and deviation 1; the reference implementation does this.
    Raw,
}

/// How [`group_relative`] normalizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupRelative {
    /// Added to the deviation; 1e-6 in the reference implementation.
    pub eps: f64,
    /// True if to divide by the deviation.
    pub normalize_std: bool,
    /// What a group of one unit is given.
    pub singleton: Singleton,
}

impl Default for GroupRelative {
    fn default() -> Self {
        Self { eps: 1e-6, normalize_std: true, singleton: Singleton::Raw }
    }
}

/// The units of one group.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GroupStats {
    /// How many units.
    pub size: usize,
    /// Their mean; 0 for an empty group.
    pub mean: f64,
    /// Their sample deviation (n − 1); 0 for fewer than two.
    pub std: f64,
}

/// Returns the advantage of each row `[N]`, relative to its group, and the statistics of each group `[max id + 1]`.
///
/// ```text
/// uᵢ = mean of values over the rows of unit(i)
/// Aᵢ = (uᵢ − μ_g) / (σ_g + ε),   μ, σ over the units of g = group(i)
/// ```
///
/// With unit = episode and group = task this is GRPO ([Shao et al., 2024], §4.1.2); with unit = row and group = (task,
/// seat) it is Dr. MAS ([2602.08847], eq. 5), where a seat is compared only with itself.
///
/// - `σ` is the sample deviation (n − 1), as in the reference implementation; the paper has n.
/// - A group of one unit follows [`Singleton`]; its statistics still say its own mean and deviation 0.
///
/// # Panics
///
/// If the lengths differ, or a unit lies in two groups.
///
/// [Shao et al., 2024]: https://arxiv.org/abs/2402.03300
/// [2602.08847]: https://arxiv.org/abs/2602.08847
pub fn group_relative(
    values: &[f64],
    unit: &[usize],
    group: &[usize],
    opt: &GroupRelative,
) -> (Vec<f64>, Vec<GroupStats>) {
    let n = values.len();
    assert_eq!(unit.len(), n, "group_relative: {} units of {n} values", unit.len());
    assert_eq!(group.len(), n, "group_relative: {} groups of {n} values", group.len());

    let units = reduce(values, unit, group);
    let stats = statistics(&units, group.iter().max().map_or(0, |g| g + 1));
    let advantages = unit.iter().zip(group).map(|(&u, &g)| {
        let stats = stats[g];
        let value = units[u].sum / units[u].rows as f64;
        let (mean, std) = match opt.singleton {
            Singleton::Raw if stats.size == 1 => (0.0, 1.0),
            _ => (stats.mean, stats.std),
        };
        let scale = if opt.normalize_std { std + opt.eps } else { 1.0 };
        (value - mean) / scale
    });
    (advantages.collect(), stats)
}

/// The rows of one unit.
#[derive(Clone, Copy, Default)]
struct Unit {
    rows: usize,
    sum: f64,
    group: usize,
}

fn reduce(values: &[f64], unit: &[usize], group: &[usize]) -> Vec<Unit> {
    let mut units = vec![Unit::default(); unit.iter().max().map_or(0, |u| u + 1)];
    for ((&value, &u), &g) in values.iter().zip(unit).zip(group) {
        let unit = &mut units[u];
        if unit.rows == 0 {
            unit.group = g;
        }
        assert_eq!(unit.group, g, "group_relative: unit {u} lies in groups {} and {g}", unit.group);
        unit.rows += 1;
        unit.sum += value;
    }
    units
}

/// Mean and sample deviation in two passes, in the order of unit ids.
fn statistics(units: &[Unit], groups: usize) -> Vec<GroupStats> {
    let mut stats = vec![GroupStats::default(); groups];
    let present = || units.iter().filter(|u| u.rows > 0).map(|u| (u.group, u.sum / u.rows as f64));
    for (g, value) in present() {
        stats[g].size += 1;
        stats[g].mean += value;
    }
    for stats in &mut stats {
        stats.mean /= stats.size.max(1) as f64;
    }
    for (g, value) in present() {
        stats[g].std += (value - stats[g].mean).powi(2);
    }
    for stats in &mut stats {
        stats.std = (stats.std / stats.size.saturating_sub(1).max(1) as f64).sqrt();
    }
    stats
}

#[cfg(test)]
mod tests;

//! Statistics of comparisons: quantiles, intervals that hold together, correlations.

use std::f64::consts::{FRAC_2_PI, SQRT_2};

use maverl::eval::{Interval, over_runs};

/// Probability that at least one of the corrected intervals of a family misses its mean.
const ERROR: f64 = 0.05;
/// Quantile of the standard normal distribution for a power of 80 %.
const POWER: f64 = 0.841_621_233_572_914;
/// Difference between values that is rounding, times the larger of their sizes if that is above 1.
const ROUNDING: f64 = 1e-9;
/// Number of halvings after which a quantile has the precision of an f64.
const HALVINGS: usize = 100;

/// Returns the mean of values with its interval in a family of `tests` intervals that all hold together with a probability of at
/// least 95 % (Bonferroni). `None` without a value. As in [`over_runs`], the interval of equal values is unknown.
///
/// ```text
/// x̄ ± t · s / √n      s² = Σ (xᵢ - x̄)² / (n - 1)      t: quantile of Student's distribution for 1 - 0.05 / tests, n - 1 degrees of freedom
/// ```
pub fn corrected_interval(values: &[f64], tests: usize) -> Option<Interval> {
    let interval = over_runs(values)?;
    if !interval.is_known() {
        return Some(interval);
    }
    let (n, mean) = (values.len() as f64, interval.mean);
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let quantile = student_quantile(1.0 - ERROR / tests.max(1) as f64, values.len() - 1);
    let half = quantile * (squares / (n - 1.0) / n).sqrt();
    Some(Interval { mean, low: mean - half, high: mean + half })
}

/// Returns the number of runs with which the corrected interval of values with this mean and deviation excludes 0 with a
/// probability of 80 %, by the normal distribution; `None` if their mean is 0.
///
/// ```text
/// n = ⌈((z(1 - 0.025 / tests) + z(0.8)) · s / x̄)²⌉          with one test, ⌈(2.80 · s / x̄)²⌉
/// ```
pub fn runs_needed(values: &[f64], tests: usize) -> Option<f64> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let deviation = (squares / (n - 1.0)).sqrt();
    let quantile = normal_quantile(1.0 - ERROR / (2.0 * tests.max(1) as f64));
    (mean != 0.0).then(|| ((quantile + POWER) * deviation / mean).powi(2).ceil())
}

/// Returns the mean; `None` without a value.
///
/// ```text
/// x̄ = (1/n) Σ xᵢ
/// ```
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.into_iter().fold((0.0, 0.0), |(sum, n), value| (sum + value, n + 1.0));
    (n > 0.0).then(|| sum / n)
}

/// Returns the number t such that a variable of Student's distribution lies between -t and t with the probability `level`, by
/// bisection. NaN without degrees of freedom, or if `level` is not between 0 and 1.
pub fn student_quantile(level: f64, freedom: usize) -> f64 {
    if freedom == 0 || !(0.0..1.0).contains(&level) {
        return f64::NAN;
    }
    let mut high = 1.0;
    while student_within(high, freedom) < level {
        high *= 2.0;
    }
    bisect(0.0, high, |t| student_within(t, freedom) >= level)
}

/// Returns the probability that a variable of Student's distribution lies between -t and t (Abramowitz and Stegun, 26.7.3 and
/// 26.7.4).
///
/// ```text
/// θ = atan(t / √ν)
/// ν even:  sin θ · (1 + 1/2 cos²θ + 1·3/(2·4) cos⁴θ + ..)              up to cos^(ν-2)
/// ν odd:   2/π · (θ + sin θ · (cos θ + 2/3 cos³θ + 2·4/(3·5) cos⁵θ + ..))   up to cos^(ν-2)
/// ```
pub fn student_within(t: f64, freedom: usize) -> f64 {
    let angle = libm::atan(t / (freedom as f64).sqrt());
    let (sine, cosine) = (libm::sin(angle), libm::cos(angle));
    let odd = freedom % 2;
    let mut term = if odd == 1 { cosine } else { 1.0 };
    let mut sum = 0.0;
    for index in 0..freedom / 2 {
        sum += term;
        let k = (2 * index + 1 + odd) as f64;
        term *= cosine * cosine * k / (k + 1.0);
    }
    if odd == 1 { FRAC_2_PI * (angle + sine * sum) } else { sine * sum }
}

/// Returns the quantile of the standard normal distribution for a probability, by bisection.
pub fn normal_quantile(probability: f64) -> f64 {
    bisect(-40.0, 40.0, |z| 0.5 * libm::erfc(-z / SQRT_2) >= probability)
}

/// Returns the smallest number between two at which a condition holds that holds from some number on.
fn bisect(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// Returns the correlation of pairs (Pearson). `None` if there are fewer than two, or either side does not vary by more than
/// rounding.
///
/// ```text
/// r = Σ (aᵢ - ā)(bᵢ - b̄) / √(Σ (aᵢ - ā)² · Σ (bᵢ - b̄)²)
/// ```
pub fn correlation(pairs: &[[f64; 2]]) -> Option<f64> {
    let varies = |side: usize| pairs.windows(2).any(|two| differ(two[0][side], two[1][side]));
    if !varies(0) || !varies(1) {
        return None;
    }
    let n = pairs.len() as f64;
    let means = [0, 1].map(|side| pairs.iter().map(|pair| pair[side]).sum::<f64>() / n);
    let product = |i: usize, j: usize| {
        pairs.iter().map(|pair| (pair[i] - means[i]) * (pair[j] - means[j])).sum::<f64>()
    };
    Some(product(0, 1) / (product(0, 0) * product(1, 1)).sqrt())
}

/// Returns true if two values differ by more than rounding.
fn differ(a: f64, b: f64) -> bool {
    (a - b).abs() > ROUNDING * a.abs().max(b.abs()).max(1.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 2e-6 * expected.abs().max(1.0), "{found} {expected}");
    }

    #[test]
    fn quantiles_of_student_are_those_of_tables() {
        for (level, freedom, expected) in [
            (0.95, 1, 12.706_205),
            (0.95, 2, 4.302_653),
            (0.95, 4, 2.776_445),
            (0.95, 19, 2.093_024),
            (0.99, 4, 4.604_095),
            (0.99, 9, 3.249_836),
            (0.999, 29, 3.659_405),
        ] {
            close(student_quantile(level, freedom), expected);
        }
        assert!(student_quantile(0.95, 0).is_nan() && student_quantile(1.0, 3).is_nan());
    }

    #[test]
    fn quantiles_of_one_and_two_degrees_of_freedom_have_closed_forms() {
        for level in [0.9, 0.975, 0.9875] {
            // P = 2/π · atan t, and P = t / √(2 + t²).
            close(student_quantile(level, 1), libm::tan(std::f64::consts::FRAC_PI_2 * level));
            let two = level * SQRT_2 / (1.0 - level * level).sqrt();
            close(student_quantile(level, 2), two);
        }
    }

    #[test]
    fn quantiles_of_the_normal_distribution_are_those_of_tables() {
        for (probability, expected) in
            [(0.5, 0.0), (0.8, POWER), (0.975, 1.959_964), (0.9875, 2.241_403), (0.025, -1.959_964)]
        {
            close(normal_quantile(probability), expected);
        }
    }

    #[test]
    fn an_interval_among_several_is_wider() {
        // Mean 0.2, s = 0.1, n = 3. One test: 4.302653 · 0.1 / √3 = 0.248414. Two tests, level 0.975:
        // t = 0.975 · √2 / √(1 - 0.975²) = 6.205347, half width 0.358266.
        let values = [0.1, 0.2, 0.3];
        let alone = corrected_interval(&values, 1).unwrap();
        close(alone.high - alone.mean, 0.248_414);
        let of_two = corrected_interval(&values, 2).unwrap();
        close(of_two.high - of_two.mean, 0.358_266);
        close(of_two.mean - of_two.low, 0.358_266);
        assert_eq!(corrected_interval(&[], 2), None);
        assert!(!corrected_interval(&[0.5; 3], 2).unwrap().is_known());
        assert!(!corrected_interval(&[0.5], 2).unwrap().is_known());
    }

    #[test]
    fn more_tests_need_more_runs() {
        // Mean 0.1, s = 0.282843: (2.801585 · 2.828427)² = 62.8; with two tests (3.083025 · 2.828427)² = 76.04.
        assert_eq!(runs_needed(&[-0.1, 0.3], 1), Some(63.0));
        assert_eq!(runs_needed(&[-0.1, 0.3], 2), Some(77.0));
        assert_eq!(runs_needed(&[0.0, 0.0], 1), None);
    }

    #[test]
    fn a_correlation_is_that_of_pearson() {
        assert_eq!(correlation(&[[0.0, 1.0], [1.0, 3.0], [2.0, 5.0]]), Some(1.0));
        // Centered: a = -1, 0, 1 and b = 1, -2, 1: no linear dependence.
        close(correlation(&[[0.0, 3.0], [1.0, 0.0], [2.0, 3.0]]).unwrap(), 0.0);
        // Centered: a = -1, 0, 1 and b = -1, 1, 0: 1 / √(2 · 2).
        close(correlation(&[[0.0, 0.0], [1.0, 2.0], [2.0, 1.0]]).unwrap(), 0.5);
        assert_eq!(correlation(&[[0.0, 1.0], [1.0, 1.0]]), None, "one side does not vary");
        assert_eq!(correlation(&[[0.0, 1.0]]), None);
    }
}

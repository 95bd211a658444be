//! Mean 0, deviation 1.

use maverl_kernels::advantage::Segments;
use serde::{Deserialize, Serialize};

use crate::algo::Sample;
use crate::credit::Estimators;
use crate::plan::AlgorithmPlan;

/// Share of the deviation of rewards that whitening divides by at least.
///
/// Advantages from values have the deviation `σ √(1 − EV)`, with EV the variance of the rewards that the values explain.
/// Below a tenth of σ, more than 99 % is explained, or the rewards of the step are nearly equal. What is left then is mostly
/// the error of the values, which whitening would enlarge to the size of a signal.
const LEAST_SHARE: f64 = 0.1;

/// Returns true if the advantages of a step are whitened. Values compare the only episode of a step with other steps: the mean
/// over its own tokens would subtract the result of that comparison.
pub(crate) fn is_whitened(algorithm: &AlgorithmPlan, samples: &[Sample]) -> bool {
    let several = samples.iter().any(|sample| sample.episode != samples[0].episode);
    algorithm.whiten && (several || algorithm.critic.is_none())
}

/// Gives the values of all tokens `[N][T]` mean 0 and deviation 1; see
/// [`whiten_groups`](maverl_kernels::advantage::whiten_groups()).
pub(crate) fn whiten_tokens(values: &mut [Vec<f64>], estimators: &Estimators) {
    let flat = values.concat();
    let whitened =
        estimators.whiten(&flat, &vec![1; flat.len()], &Segments::single_group(flat.len()));
    for (value, whitened) in values.iter_mut().flatten().zip(whitened) {
        *value = whitened;
    }
}

/// Reduces whitened values `[N][T]` to those of a larger divisor, if that of whitening was below `least`. `before` are the
/// values before whitening. Returns `least` if it is the divisor.
///
/// ```text
/// A = (x − mean) / max(√(var + 1e-8), least)          least: [`RewardSpread::least_divisor`]
/// ```
pub(crate) fn limit_whitened(
    before: &[Vec<f64>],
    whitened: &mut [Vec<f64>],
    least: f64,
) -> Option<f64> {
    let (_, deviation) = token_moments(before);
    let divisor = (deviation.powi(2) + 1e-8).sqrt();
    if divisor.is_nan() || divisor >= least {
        return None;
    }
    whitened.iter_mut().flatten().for_each(|value| *value *= divisor / least);
    Some(least)
}

/// Returns mean and sample deviation of all tokens.
pub(crate) fn token_moments(values: &[Vec<f64>]) -> (f64, f64) {
    let n = values.iter().map(Vec::len).sum::<usize>() as f64;
    let mean = values.iter().flatten().sum::<f64>() / n.max(1.0);
    let squares: f64 = values.iter().flatten().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0).max(1.0)).sqrt())
}

/// Spread of all rewards of a run, up to its present step.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RewardSpread {
    /// Number of rewards.
    n: f64,
    /// Mean.
    mean: f64,
    /// Sum of the squared distances to the mean.
    m2: f64,
}

impl RewardSpread {
    /// Adds the rewards of a step (Welford's algorithm).
    pub fn add(&mut self, rewards: impl IntoIterator<Item = f64>) {
        for reward in rewards {
            self.n += 1.0;
            let distance = reward - self.mean;
            self.mean += distance / self.n;
            self.m2 += distance * (reward - self.mean);
        }
    }

    /// Returns the least divisor of whitening, `0.1 σ`, with σ the sample deviation of the rewards.
    pub fn least_divisor(&self) -> f64 {
        LEAST_SHARE * (self.m2 / (self.n - 1.0).max(1.0)).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::testing::assert_close;
    use crate::credit::CPU;

    /// Whitens values of a token each; returns them with the divisor that replaced their own.
    fn whitened(values: &[f64], least: f64) -> (Vec<f64>, Option<f64>) {
        let before: Vec<Vec<f64>> = values.iter().map(|&value| vec![value]).collect();
        let mut whitened = before.clone();
        whiten_tokens(&mut whitened, &CPU);
        let divisor = limit_whitened(&before, &mut whitened, least);
        (whitened.concat(), divisor)
    }

    #[test]
    fn whitening_divides_by_at_least_a_tenth_of_the_deviation_of_the_rewards() {
        let mut spread = RewardSpread::default();
        assert_eq!(spread.least_divisor(), 0.0, "before the first reward");
        spread.add([0.0, 1.0, 0.0]);
        spread.add([1.0]);
        let least = spread.least_divisor();
        assert_close("n - 1", &[least], &[0.1 * (1.0_f64 / 3.0).sqrt()], 1e-15);
        // Advantages that are mostly the error of the values keep their size against the rewards.
        let (small, divisor) = whitened(&[0.004, -0.004], least);
        assert_eq!(divisor, Some(least));
        assert_close("small", &small, &[0.004 / least, -0.004 / least], 1e-12);
        let (of_noise, _) = whitened(&[0.004, -0.004], 0.0);
        assert_close(
            "without a least divisor",
            &of_noise,
            &[0.5_f64.sqrt(), -0.5_f64.sqrt()],
            1e-3,
        );
    }

    #[test]
    fn whitening_of_advantages_with_the_spread_of_rewards_stays_as_it_was_to_the_bit() {
        for values in [vec![0.75, -0.25, -0.25, -0.25], vec![5.0, 6.0, 5.0], vec![0.2, 0.1, 0.0]] {
            let (plain, divisor) = whitened(&values, 0.0);
            assert_eq!(divisor, None);
            let mut spread = RewardSpread::default();
            spread.add([0.0, 1.0, 0.0, 1.0, 1.0]);
            assert_eq!(whitened(&values, spread.least_divisor()), (plain, None), "{values:?}");
        }
    }

    #[test]
    fn the_least_divisor_has_the_unit_of_rewards_and_no_shift_changes_it() {
        let of = |scale: f64, shift: f64| {
            let mut spread = RewardSpread::default();
            spread.add([0.0, 1.0, 0.5, 0.0].map(|reward| scale * reward + shift));
            spread.least_divisor()
        };
        assert_close("scale", &[of(100.0, 0.0)], &[100.0 * of(1.0, 0.0)], 1e-12);
        assert_close("shift", &[of(1.0, 1000.0)], &[of(1.0, 0.0)], 1e-9);
    }
}

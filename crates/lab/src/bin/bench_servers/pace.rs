//! Pace of clients: latencies of one, and the rate of many.

use std::num::NonZeroUsize;
use std::time::Instant;

use maverl::cli::Failure;

/// Latencies of one client, and the rate of many.
#[derive(Default)]
pub(crate) struct CallPace {
    /// Half of the calls of one client take at most so many milliseconds, in each repeat.
    pub(crate) p50: Vec<f64>,
    /// 99 % of them take at most so many milliseconds.
    pub(crate) p99: Vec<f64>,
    /// Calls per second of many clients at once.
    pub(crate) rates: Vec<f64>,
}

/// Measures one client, and `many` at once, in each repeat after the first, which is not counted. `play` plays so many clients at
/// once, and returns the milliseconds of all their calls, ascending.
pub(crate) async fn measure_pace(
    repeats: NonZeroUsize,
    many: usize,
    play: impl AsyncFn(usize) -> Result<Vec<f64>, Failure>,
) -> Result<CallPace, Failure> {
    let mut pace = CallPace::default();
    for repeat in 0..=repeats.get() {
        let alone = play(1).await?;
        let begin = Instant::now();
        let all = play(many).await?;
        let seconds = begin.elapsed().as_secs_f64();
        if repeat > 0 {
            pace.p50.push(percentile(&alone, 50));
            pace.p99.push(percentile(&alone, 99));
            pace.rates.push(all.len() as f64 / seconds);
        }
    }
    Ok(pace)
}

/// Returns the smallest of ascending values that `percent` of them do not exceed; 0 for none.
pub(crate) fn percentile(ascending: &[f64], percent: usize) -> f64 {
    let place = (ascending.len() * percent).div_ceil(100).saturating_sub(1);
    ascending.get(place).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!([1, 50, 99, 100].map(|p| percentile(&values, p)), [2.0, 100.0, 198.0, 200.0]);
        assert_eq!((percentile(&[7.0], 99), percentile(&[], 50)), (7.0, 0.0));
    }
}

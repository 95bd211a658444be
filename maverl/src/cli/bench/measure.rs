//! The clock and the memory.

use std::num::NonZeroUsize;
use std::time::Instant;

use super::Failure;

/// Seconds that `work` takes, of each repeat after the first, which is not counted. `prepare` is not measured.
pub(super) async fn timed<T>(
    repeats: NonZeroUsize,
    mut prepare: impl AsyncFnMut() -> Result<T, Failure>,
    mut work: impl AsyncFnMut(T) -> Result<(), Failure>,
) -> Result<Vec<f64>, Failure> {
    let mut seconds = Vec::with_capacity(repeats.get());
    for repeat in 0..=repeats.get() {
        let prepared = prepare().await?;
        let start = Instant::now();
        work(prepared).await?;
        if repeat > 0 {
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    Ok(seconds)
}

/// The middle value, or the mean of the two in the middle; 0 of none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (n, half) if n % 2 == 0 => (sorted[half - 1] + sorted[half]) / 2.0,
        (_, half) => sorted[half],
    }
}

/// The most memory that this process ever held in bytes, where the system tells.
pub(super) fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(1024 * line.split_whitespace().next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 9.0, 2.0]), 3.0);
    }

    #[tokio::test]
    async fn the_first_repeat_is_not_counted() {
        let mut prepared = 0;
        let mut worked = Vec::new();
        let prepare = async || {
            prepared += 1;
            Ok(prepared)
        };
        let work = async |n| {
            worked.push(n);
            Ok(())
        };
        let seconds = timed(NonZeroUsize::MIN.saturating_add(2), prepare, work).await.unwrap();
        assert_eq!((seconds.len(), worked), (3, vec![1, 2, 3, 4]));
    }
}

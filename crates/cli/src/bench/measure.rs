//! Measurement of time, processor use and memory.

use std::num::NonZeroUsize;
use std::time::Instant;

use crate::Failure;

/// Returns the seconds of `work` in each repeat after the first, which is not counted. `prepare` is not measured.
pub async fn time_repeats<T>(
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

/// Returns the median, the mean of the two middle values for an even number; 0 for none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (n, half) if n % 2 == 0 => (sorted[half - 1] + sorted[half]) / 2.0,
        (_, half) => sorted[half],
    }
}

/// Processor use during a measurement.
pub struct ProcessorUse {
    start: Instant,
    before: Option<BusyTime>,
}

/// Processor seconds so far: of the whole machine, including time taken by its host, and of this process.
struct BusyTime {
    machine: f64,
    own: f64,
}

impl ProcessorUse {
    /// Starts to measure.
    pub fn start() -> Self {
        Self { start: Instant::now(), before: BusyTime::now() }
    }

    /// Returns the average number of processors that other processes used since the start, if the system reports it. A
    /// measurement beside others is unreliable.
    pub fn other_processors(&self) -> Option<f64> {
        let (before, now) = (self.before.as_ref()?, BusyTime::now()?);
        let others = (now.machine - before.machine) - (now.own - before.own);
        Some((others / self.start.elapsed().as_secs_f64()).max(0.0))
    }
}

impl BusyTime {
    fn now() -> Option<Self> {
        let (machine, own) = ("/proc/stat", "/proc/self/stat");
        Self::of(&std::fs::read_to_string(machine).ok()?, &std::fs::read_to_string(own).ok()?)
    }

    fn of(machine: &str, own: &str) -> Option<Self> {
        // user nice system idle iowait irq softirq steal; guests are counted in user already.
        let machine = machine.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let machine = machine.take(8).enumerate().filter(|(i, _)| ![3, 4].contains(i));
        // The program's name may contain any character; after its bracket, utime and stime are at 11 and 12.
        let own = own.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
        Some(Self { machine: hundredths(machine.map(|(_, field)| field))?, own: hundredths(own)? })
    }
}

/// Parses seconds; the kernel reports hundredths of a second.
fn hundredths<'a>(fields: impl Iterator<Item = &'a str>) -> Option<f64> {
    let all = fields.map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(all as f64 / 100.0)
}

/// Returns the peak memory of this process in bytes, if the system reports it.
pub fn peak() -> Option<u64> {
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

    #[test]
    fn processor_time_is_read_as_the_kernel_writes_it() {
        let machine = "cpu  100 20 30 9999 999 4 5 6 70 0\ncpu0 1 2 3";
        let own = "7 (a) b) R 1 1 1 0 -1 0 0 0 0 0 250 50 0 0 20";
        let busy = BusyTime::of(machine, own).unwrap();
        assert_eq!((busy.machine, busy.own), (1.65, 3.0));
        assert!(BusyTime::of("cpu x", own).is_none() && BusyTime::of(machine, "7 a").is_none());
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
        let seconds =
            time_repeats(NonZeroUsize::MIN.saturating_add(2), prepare, work).await.unwrap();
        assert_eq!((seconds.len(), worked), (3, vec![1, 2, 3, 4]));
    }
}

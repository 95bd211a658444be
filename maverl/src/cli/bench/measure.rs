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

/// What the processors did while something was measured.
pub(super) struct Watch {
    start: Instant,
    before: Option<Busy>,
}

/// Processor seconds so far: of the whole machine, time that its host took from it included, and of this process.
struct Busy {
    machine: f64,
    own: f64,
}

impl Watch {
    pub(super) fn start() -> Self {
        Self { start: Instant::now(), before: Busy::now() }
    }

    /// How many processors others kept busy since the start, in the mean, where the system tells. A measurement beside
    /// others is worth little.
    pub(super) fn others(&self) -> Option<f64> {
        let (before, now) = (self.before.as_ref()?, Busy::now()?);
        let others = (now.machine - before.machine) - (now.own - before.own);
        Some((others / self.start.elapsed().as_secs_f64()).max(0.0))
    }
}

impl Busy {
    fn now() -> Option<Self> {
        let (machine, own) = ("/proc/stat", "/proc/self/stat");
        Self::of(&std::fs::read_to_string(machine).ok()?, &std::fs::read_to_string(own).ok()?)
    }

    fn of(machine: &str, own: &str) -> Option<Self> {
        // user nice system idle iowait irq softirq steal; guests are counted in user already.
        let machine = machine.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let machine = machine.take(8).enumerate().filter(|(i, _)| ![3, 4].contains(i));
        // The name of the program may hold anything; what follows its bracket has utime and stime at 11 and 12.
        let own = own.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
        Some(Self { machine: hundredths(machine.map(|(_, field)| field))?, own: hundredths(own)? })
    }
}

/// Seconds; the kernel counts in hundredths of one for everyone who asks.
fn hundredths<'a>(fields: impl Iterator<Item = &'a str>) -> Option<f64> {
    let all = fields.map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(all as f64 / 100.0)
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

    #[test]
    fn processor_time_is_read_as_the_kernel_writes_it() {
        let machine = "cpu  100 20 30 9999 999 4 5 6 70 0\ncpu0 1 2 3";
        let own = "7 (a) b) R 1 1 1 0 -1 0 0 0 0 0 250 50 0 0 20";
        let busy = Busy::of(machine, own).unwrap();
        assert_eq!((busy.machine, busy.own), (1.65, 3.0));
        assert!(Busy::of("cpu x", own).is_none() && Busy::of(machine, "7 a").is_none());
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

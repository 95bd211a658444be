//! Samples of the worker groups during a rollout: sampled tokens and blocks of the key-value cache.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::run_dir::WorkerSample;
use crate::runtime::Policy;

/// Maximum number of samples of a policy.
const MOST: usize = 64;

/// Samples of a rollout. When there are too many, every second one is dropped and the interval is doubled.
#[derive(Debug)]
pub(crate) struct WorkerLoads {
    start: Instant,
    /// Sampled tokens of each policy at the start.
    before: Vec<u64>,
    policies: BTreeMap<String, Vec<WorkerSample>>,
    /// Number of times between two samples, and of those since the last one.
    every: usize,
    since: usize,
}

impl WorkerLoads {
    /// Begins with a rollout.
    pub(crate) fn begin(policies: &[Policy]) -> Self {
        let before = policies.iter().map(|policy| policy.work().decoded).collect();
        Self { start: Instant::now(), before, policies: BTreeMap::new(), every: 1, since: 0 }
    }

    /// Adds a sample of each policy, if it is due.
    pub(crate) fn add(&mut self, policies: &[Policy]) {
        let at = self.start.elapsed().as_secs_f64();
        if !self.is_due() {
            return;
        }
        for (policy, before) in policies.iter().zip(&self.before) {
            let [used, cached, free] = policy.kv_blocks().counts();
            let tokens = policy.work().decoded - before;
            let sample = WorkerSample(at, tokens, used, used + cached + free);
            self.policies.entry(policy.name().to_owned()).or_default().push(sample);
        }
        self.thin();
    }

    fn is_due(&mut self) -> bool {
        self.since += 1;
        let due = self.since >= self.every;
        self.since = if due { 0 } else { self.since };
        due
    }

    /// Drops every second sample if there are too many.
    fn thin(&mut self) {
        if self.policies.values().all(|samples| samples.len() <= MOST) {
            return;
        }
        for samples in self.policies.values_mut() {
            let mut keep = false;
            samples.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.every *= 2;
    }

    /// Takes the samples.
    pub(crate) fn take(&mut self) -> BTreeMap<String, Vec<WorkerSample>> {
        std::mem::take(&mut self.policies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_samples_are_thinned_evenly() {
        let mut samples = WorkerLoads::begin(&[]);
        for i in 0..1000_u64 {
            if samples.is_due() {
                let sample = WorkerSample(i as f64, i, 0, 1);
                samples.policies.entry("a".to_owned()).or_default().push(sample);
                samples.thin();
            }
        }
        let found = &samples.take()["a"];
        assert!(found.len() <= MOST && found.len() >= MOST / 2, "{}", found.len());
        let steps: Vec<u64> = found.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
        let (least, most) = (steps.iter().min(), steps.iter().max());
        assert!(least.zip(most).is_some_and(|(least, most)| *most <= 2 * *least), "{steps:?}");
    }
}

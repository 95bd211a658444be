//! Cost of completions.

use std::ops::{Add, Sub};

/// Cost of a policy's completions. It depends on the arrival times of requests, so it belongs to the timing part of a
/// run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct EngineStats {
    /// Tokens computed before a completion could begin, or resume after a preemption.
    pub prefilled: u64,
    /// Tokens found in the cache, computed for another request.
    pub reused: u64,
    /// Number of preemptions because memory for keys and values was full.
    pub preempted: u64,
    /// Tokens decoded one by one.
    pub decoded: u64,
    /// Tokens that were computed before it was known that their completion had ended.
    pub discarded: u64,
    /// Number of forward passes with decoding.
    pub passes: u64,
}

impl EngineStats {
    /// Returns the mean number of requests that decoded at once; 0 if none did.
    pub fn decode_batch(&self) -> f64 {
        self.decoded as f64 / self.passes.max(1) as f64
    }
}

impl Add for EngineStats {
    type Output = Self;

    /// Returns the sum of both.
    fn add(self, other: Self) -> Self {
        Self {
            prefilled: self.prefilled + other.prefilled,
            reused: self.reused + other.reused,
            preempted: self.preempted + other.preempted,
            decoded: self.decoded + other.decoded,
            discarded: self.discarded + other.discarded,
            passes: self.passes + other.passes,
        }
    }
}

impl Sub for EngineStats {
    type Output = Self;

    /// Returns the difference since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            prefilled: self.prefilled - earlier.prefilled,
            reused: self.reused - earlier.reused,
            preempted: self.preempted - earlier.preempted,
            decoded: self.decoded - earlier.decoded,
            discarded: self.discarded - earlier.discarded,
            passes: self.passes - earlier.passes,
        }
    }
}

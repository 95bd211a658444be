//! What completions cost.

use std::ops::Sub;

/// What the completions of a policy have cost. Depends on when requests came, so it belongs to the clock's part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineStats {
    /// Tokens computed before a completion could begin, or go on after it was set back.
    pub prefilled: u64,
    /// Tokens that were there already, as part of another request.
    pub reused: u64,
    /// How often a request was set back because memory for keys and values was full.
    pub preempted: u64,
    /// Tokens fed one by one.
    pub decoded: u64,
    /// Forward passes in which that was so.
    pub passes: u64,
}

impl EngineStats {
    /// Requests that decoded at once, in the mean; 0 if none did.
    pub fn decode_batch(&self) -> f64 {
        self.decoded as f64 / self.passes.max(1) as f64
    }
}

impl Sub for EngineStats {
    type Output = Self;

    /// What was done since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            prefilled: self.prefilled - earlier.prefilled,
            reused: self.reused - earlier.reused,
            preempted: self.preempted - earlier.preempted,
            decoded: self.decoded - earlier.decoded,
            passes: self.passes - earlier.passes,
        }
    }
}

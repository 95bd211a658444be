//! Operations of a comparison: how many are left, and why one stopped.

/// Reason for a missing value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The operation budget of an answer is exceeded.
    Budget,
    /// The text is no expression, or one without a value, such as a division by zero.
    Meaningless,
}

/// Remaining operations of a comparison: a count, so that a verdict never depends on a clock.
#[derive(Debug)]
pub(crate) struct WorkBudget(u64);

impl WorkBudget {
    /// Operation budget of a comparison.
    pub(crate) const BUDGET: u64 = 20_000;

    pub(crate) fn new() -> Self {
        Self(Self::BUDGET)
    }

    pub(crate) fn spend(&mut self, cost: u64) -> Result<(), Stop> {
        self.0 = self.0.checked_sub(cost).ok_or(Stop::Budget)?;
        Ok(())
    }

    /// Returns the number of operations used so far.
    pub(crate) fn operations(&self) -> u64 {
        Self::BUDGET - self.0
    }
}

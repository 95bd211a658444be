//! Renewal of the reference policy.

use serde::Serialize;

/// Renewal of the reference policy, resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ReferencePlan {
    /// Steps after which the reference becomes the current policy; 0 keeps the starting weights.
    pub every: u64,
}

impl ReferencePlan {
    /// Returns true if the reference is renewed before step `step`, counted from 0.
    pub fn is_due(self, step: u64) -> bool {
        step > 0 && self.every > 0 && step.is_multiple_of(self.every)
    }
}

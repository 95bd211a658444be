//! Checkpoints of a plan: their size, and the way in which they are written.

use serde::Serialize;

use super::numbers::{NUMBER, bytes};
use super::{Plan, PolicyPlan};
use crate::config::{OptimizerKind, SavedMoments};

/// Way in which the checkpoints of a run are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointWriting {
    /// Policies are copied in memory between two steps, and written from the copy while the run goes on.
    Copied,
    /// Policies are written between two steps.
    BetweenSteps {
        /// Reason why there is no copy.
        reason: String,
    },
}

impl Plan {
    /// Returns true if policies are copied in memory for a checkpoint.
    pub(crate) fn copies_checkpoints(&self) -> bool {
        self.checkpoints == Some(CheckpointWriting::Copied)
    }

    /// Returns the bytes that a checkpoint has of a policy: weights, a renewed reference, critic and moments.
    pub(crate) fn checkpoint_bytes(&self, policy: &PolicyPlan) -> u64 {
        let parameters = self.parameters(policy);
        let trained = if policy.trained { parameters } else { 0 };
        let renewed = policy.reference && self.algorithm.reference.every > 0;
        let reference = if renewed { parameters } else { 0 };
        let numbers = parameters.saturating_add(reference).saturating_add(policy.critic_parameters);
        let moments = moment_bytes(self.config.checkpoint.moments, policy.optim.kind);
        let of_critic = moment_bytes(self.config.checkpoint.moments, OptimizerKind::Adamw);
        numbers
            .saturating_mul(NUMBER)
            .saturating_add(trained.saturating_mul(moments))
            .saturating_add(policy.critic_parameters.saturating_mul(of_critic))
    }

    /// Returns the way in which checkpoints are written as a line for readers; `None` if none is written.
    pub(crate) fn checkpoint_line(&self) -> Option<String> {
        Some(match self.checkpoints.as_ref()? {
            CheckpointWriting::Copied => {
                let policies = self.policies.iter().map(|policy| self.checkpoint_bytes(policy));
                let copied = bytes(policies.fold(0, u64::saturating_add));
                format!(
                    "checkpoints: {copied}, copied in memory between two steps, and written while the run goes on"
                )
            }
            CheckpointWriting::BetweenSteps { reason } => {
                format!("checkpoints: written between two steps, which wait for the disk: {reason}")
            }
        })
    }
}

/// Returns the bytes of the moments of a trained parameter in a checkpoint. The scales of moments in 8 bits, below a
/// hundredth of their codes, are left out.
fn moment_bytes(moments: SavedMoments, kind: OptimizerKind) -> u64 {
    match (moments, kind) {
        (SavedMoments::None, _) => 0,
        (SavedMoments::Bf16, _) | (SavedMoments::F32, OptimizerKind::Adamw8bit) => 4,
        (SavedMoments::F32, _) => 8,
    }
}

//! Memory for the copy of the policies from which a checkpoint is written.

use super::memory::{NEAR, is_on_gpu, peak_memory};
use crate::check::purpose::Purpose;
use crate::plan::{CheckpointWriting, DeviceMemory, Plan, bytes};

/// Part of the memory that a copy may always have: one in so many bytes.
const SMALL: u64 = 100;

/// Chooses the way in which checkpoints are written: from a copy in memory where it fits beside the most that the plan takes;
/// `None` for a purpose that writes no checkpoint.
pub(crate) fn plan_checkpoints(
    (plan, devices): (&Plan, &[DeviceMemory]),
    purpose: Purpose,
    machine: Option<u64>,
) -> Option<CheckpointWriting> {
    if !matches!(purpose, Purpose::Train | Purpose::Plan | Purpose::Ranks) {
        return None;
    }
    let Some(machine) = machine else {
        let reason = "the memory of this machine is not known".to_owned();
        return Some(CheckpointWriting::BetweenSteps { reason });
    };
    let copies = plan.policies.iter().map(|policy| {
        // What is read from a GPU is in memory once more until it is copied.
        let times = if is_on_gpu(&plan.workers[policy.worker], plan, devices) { 2 } else { 1 };
        plan.checkpoint_bytes(policy).saturating_mul(times)
    });
    let copy = copies.fold(0, u64::saturating_add);
    let peak = peak_memory((plan, devices), purpose);
    let usable = (NEAR * machine as f64) as u64;
    if copy <= machine / SMALL || peak.saturating_add(copy) <= usable {
        return Some(CheckpointWriting::Copied);
    }
    let reason = format!(
        "a copy takes {}, the plan up to {}, and together they may take {} of the {} that this machine has",
        bytes(copy),
        bytes(peak),
        bytes(usable),
        bytes(machine)
    );
    Some(CheckpointWriting::BetweenSteps { reason })
}

//! Comparison of a plan with this machine: its devices, its memory, and the servers that it is given.

mod available;
mod checkpoints;
mod device;
mod distributions;
mod endpoints;
mod keys;
mod memory;
mod processor;
mod rewards;
mod servers;
mod sharding;
mod trackers;

use super::purpose::Purpose;
use crate::config::source::Problems;
use crate::plan::{CheckpointWriting, DeviceMemory, Plan};
pub use available::available_memory;
pub(crate) use trackers::missing_part;

#[cfg(test)]
pub(super) use checkpoints::plan_checkpoints;
pub(super) use endpoints::check_endpoints;
pub(super) use rewards::check_reward_servers;
pub(super) use servers::check_rollout_servers;
pub(super) use sharding::check_shard;
#[cfg(test)]
pub(super) use {distributions::check_distribution_memory, memory::check_memory};

/// What a plan takes of this machine.
pub(super) struct MachineUsage {
    pub(super) device_memory: Vec<DeviceMemory>,
    /// Way in which checkpoints are written; `None` if none is.
    pub(super) checkpoints: Option<CheckpointWriting>,
    pub(super) warnings: Vec<String>,
}

impl MachineUsage {
    /// Returns a plan with what it takes of this machine.
    pub(super) fn added_to(self, plan: Plan) -> Plan {
        let warnings = [plan.warnings.as_slice(), &self.warnings].concat();
        let Self { device_memory, checkpoints, .. } = self;
        Plan { device_memory, checkpoints, warnings, ..plan }
    }
}

/// Reports what this machine, and servers, do not have for a plan.
pub(super) fn check_machine(
    plan: &Plan,
    purpose: Purpose,
    problems: &mut Problems<'_>,
) -> MachineUsage {
    let mut warnings = servers::check_served_policies(plan, problems);
    device::check_devices(plan, problems);
    sharding::check_divided(plan, purpose, problems);
    warnings.extend(device::exactness_warnings(plan));
    let device_memory = device::predict_memory(plan);
    warnings.extend(device::check_device_memory((plan, &device_memory), problems));
    let used = (plan, device_memory.as_slice());
    let available = available_memory();
    warnings.extend(memory::check_memory(used, purpose, available, problems));
    warnings.extend(distributions::check_distribution_memory(plan, purpose, available));
    let checkpoints = checkpoints::plan_checkpoints(used, purpose, available);
    warnings.extend(processor::check_processor());
    warnings.extend(sharding::unused_keys(&plan.config.dist));
    if purpose.is_elsewhere() {
        trackers::check_trackers(&plan.config.track, problems);
    }
    MachineUsage { device_memory, checkpoints, warnings }
}

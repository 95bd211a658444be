//! Devices of a plan: those of its worker groups, and their memory.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Plan;
use super::numbers::{at_most, bytes};
use crate::runtime::DeviceChoice;
use crate::table::Table;

/// Bytes that a worker group takes of the memory of a device. An update takes weights, moments, others, gradients and
/// activations, and a rollout the first three, a pass, and keys and values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceMemory {
    /// Name of the worker group.
    pub worker: String,
    /// The device, never the automatic choice.
    pub device: DeviceChoice,
    /// Weights of the base, and tables of positions.
    pub weight_bytes: u64,
    /// Moments of trained policies.
    pub moment_bytes: u64,
    /// Adapters, references, and critics with their moments.
    pub other_bytes: u64,
    /// Gradients.
    pub gradient_bytes: u64,
    /// Activations and logits of a micro-batch of `runtime.micro_batch_tokens`.
    pub activation_bytes: u64,
    /// Largest forward pass of a rollout, with its keys and values.
    pub pass_bytes: u64,
    /// Keys and values at most (`runtime.kv_mib`), while their array grows.
    pub kv_bytes: u64,
    /// Largest number of bytes at once, but for keys and values of several requests.
    pub peak_bytes: u64,
}

impl DeviceMemory {
    /// Returns the bytes of a rollout whose keys and values are as large as they may be.
    pub(crate) fn rollout(&self) -> u64 {
        let resident = self.weight_bytes + self.moment_bytes + self.other_bytes;
        resident + self.pass_bytes + self.kv_bytes
    }
}

/// Returns the device of each worker group as a line for readers, if one differs from `runtime.device`.
pub(super) fn devices(plan: &Plan) -> Option<String> {
    let device = plan.config.runtime.device;
    plan.workers.iter().find(|worker| plan.device_of(worker) != device)?;
    let workers = plan.workers.iter();
    let workers: Vec<String> = workers
        .map(|worker| format!("worker `{}` on {}", worker.name, plan.device_of(worker)))
        .collect();
    let advantages = if plan.algorithm.preset.is_supervised() {
        String::new()
    } else {
        format!("; advantages on {device}")
    };
    Some(format!("devices: {}{advantages}\n", workers.join(", ")))
}

/// Formats the memory that worker groups take of their devices.
pub(super) fn table(memory: &[DeviceMemory]) -> Table {
    let devices: BTreeSet<String> = memory.iter().map(|of| of.device.to_string()).collect();
    let mut table = Table::with_frame([
        "on the device",
        "weights",
        "moments",
        "others",
        "gradients",
        "activations",
        "peak",
        "pass",
        "keys, values",
    ]);
    for of in memory {
        let worker = match devices.len() {
            1 => of.worker.clone(),
            _ => format!("{} ({})", of.worker, of.device),
        };
        table.row([
            worker,
            bytes(of.weight_bytes),
            bytes(of.moment_bytes),
            bytes(of.other_bytes),
            bytes(of.gradient_bytes),
            bytes(of.activation_bytes),
            bytes(of.peak_bytes),
            bytes(of.pass_bytes),
            at_most(of.kv_bytes),
        ]);
    }
    table
}

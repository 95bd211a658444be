//! Memory of a device in a plan.

use serde::Serialize;

use super::{at_most, bytes};
use crate::table::Table;

/// Bytes that a worker group takes of the memory of a device. An update takes weights, moments, others, gradients and
/// activations, and a rollout the first three, a pass, and keys and values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceMemory {
    /// Name of the worker group.
    pub worker: String,
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

/// Formats the memory of the device of worker groups.
pub(super) fn table(memory: &[DeviceMemory]) -> Table {
    let mut table = Table::framed([
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
        table.row([
            of.worker.clone(),
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

//! Models of clients, and requests to them.

use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value};

use maverl::runtime::{Batch, LoraSpec, OptimOptions, TargetModules};

use super::checkpoints::CheckpointAddress;
use super::results::{Promise, RequestFailure};

/// Requests of a model that wait; a client that sends more waits for an answer.
pub(super) const WAITING: usize = 64;

/// Shape of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AdapterShape {
    pub(super) rank: usize,
    pub(super) train_attn: bool,
    pub(super) train_mlp: bool,
}

impl AdapterShape {
    /// Returns the adapter of this shape on a base whose linear maps have these names.
    pub(super) fn lora(self, alpha: f64, linears: &[String]) -> LoraSpec {
        let of_mlp = |name: &String| {
            ["gate", "up_proj", "down_proj", "fc"].iter().any(|part| name.contains(part))
        };
        let chosen = linears
            .iter()
            .filter(|name| if of_mlp(name) { self.train_mlp } else { self.train_attn });
        let target_modules = TargetModules::Named(chosen.cloned().collect());
        LoraSpec { rank: self.rank, alpha, target_modules, ..LoraSpec::default() }
    }
}

/// A model of a client.
pub(super) struct ClientModel {
    pub(super) id: String,
    pub(super) session: String,
    /// Number of the base.
    pub(super) base: usize,
    pub(super) place: usize,
    pub(super) shape: AdapterShape,
    /// True once its session has ended without the client.
    pub(super) expired: AtomicBool,
}

/// A request to a model.
pub(super) struct Queued {
    pub(super) seq: u64,
    pub(super) job: ModelJob,
    pub(super) promise: Promise,
}

/// Work of a request.
pub(super) enum ModelJob {
    /// A pass, forward alone or with gradients.
    Pass { batch: Box<Batch>, loss: String, forward_only: bool },
    /// An optimizer step.
    Step(OptimOptions),
    /// A checkpoint to train on from.
    Save { name: Option<String>, overwrite: bool, metadata: Map<String, Value> },
    /// A checkpoint to sample from; without a name, for a sampling session.
    SaveSampler { name: Option<String>, session: Option<String>, metadata: Map<String, Value> },
    /// Weights of a checkpoint.
    Load { address: CheckpointAddress, optimizer: bool },
    /// A request that was refused, and whose number counts.
    Refused(RequestFailure),
}

//! Worker groups and options of the engine for a plan.

#[cfg(feature = "cuda")]
use maverl_engine::runtime::NcclOptions;
use maverl_engine::runtime::{
    AdapterSpec, CustomSurrogate, LoraSpec, PolicySpec, RuntimeOptions, WorkerSpec,
};

use super::{AdapterPlan, AlgorithmPlan, Plan, WorkerPlan};
#[cfg(feature = "cuda")]
use crate::config::Transport;
use crate::config::{Preset, SurrogatePlan};

/// Largest value of `rollout.staleness`.
const MOST_STALENESS: u64 = 64;

impl Plan {
    /// Returns the worker groups of the plan, as [`Runtime::start`](crate::runtime::Runtime::start) takes them.
    pub fn worker_specs(&self) -> Vec<WorkerSpec> {
        self.workers
            .iter()
            .enumerate()
            .map(|(index, worker)| self.worker_spec(index, worker))
            .collect()
    }

    /// Returns the worker groups of the plan for training: with snapshots, if episodes are played with earlier weights.
    pub fn training_specs(&self) -> Vec<WorkerSpec> {
        let mut specs = self.worker_specs();
        for (index, spec) in specs.iter_mut().enumerate() {
            spec.snapshots = self.snapshots(index);
        }
        specs
    }

    /// Returns the number of snapshots of each policy of a worker group in training.
    pub(super) fn snapshots(&self, worker: usize) -> usize {
        // A larger number is rejected, but planned with before.
        let staleness = self.config.rollout.staleness.min(MOST_STALENESS) as usize;
        let mut its = self.policies.iter().filter(|policy| policy.worker == worker);
        let updated = its.any(|policy| policy.trained) && self.servers_of(worker).is_none();
        if staleness > 0 && updated { staleness + 1 } else { 0 }
    }

    fn worker_spec(&self, index: usize, worker: &WorkerPlan) -> WorkerSpec {
        let mut spec = WorkerSpec::new(worker.name.clone(), worker.source.clone());
        spec.dtype = worker.dtype;
        spec.loss_scale = worker.loss_scale.unwrap_or_default();
        spec.device = worker.device;
        spec.micro_batch_tokens = worker.micro_batch_tokens;
        spec.template_kwargs = worker.chat_template_kwargs.clone();
        let policies = (0..self.policies.len()).filter(|&at| self.policies[at].worker == index);
        spec.policies = policies.map(|at| self.policy_spec(at)).collect();
        spec
    }

    fn policy_spec(&self, index: usize) -> PolicySpec {
        let policy = &self.policies[index];
        let here = self.critic_of(index) == Some(index);
        let mut spec = PolicySpec::new(policy.name.clone());
        spec.trained = policy.trained;
        spec.reference = policy.reference;
        spec.gradient_checkpointing = policy.gradient_checkpointing;
        spec.adapter = policy.adapter.as_ref().map(AdapterPlan::spec);
        spec.critic = self.algorithm.critic.as_ref().filter(|_| here).map(|critic| critic.spec());
        if self.algorithm.preset == Preset::Verifier {
            // The head of rewards is trained on a trunk of its own, and the policy stays as it is.
            spec.trained = false;
            if let Some(critic) = &mut spec.critic {
                critic.head = self.algorithm.verifier.head;
                critic.head_rate = self.algorithm.verifier.head_rate;
            }
        }
        spec.optim = policy.optim;
        spec
    }

    /// Returns the options of the machine.
    pub fn runtime_options(&self) -> RuntimeOptions {
        RuntimeOptions {
            seed: self.config.seed,
            shard: self.config.dist.shard,
            #[cfg(feature = "cuda")]
            nccl: match self.config.dist.transport {
                Transport::Nccl => Some(NcclOptions::within_seconds(self.config.dist.timeout_s)),
                Transport::Tcp | Transport::Mpi => None,
            },
            ..self.config.runtime.clone()
        }
    }
}

impl AlgorithmPlan {
    /// Returns the declared surrogate as batches hold it.
    pub(crate) fn custom_surrogate(&self) -> Option<CustomSurrogate> {
        match &self.loss.surrogate {
            SurrogatePlan::Declared(declared) => Some(CustomSurrogate {
                name: declared.chosen.name.clone(),
                value: declared.value.clone(),
            }),
            _ => None,
        }
    }
}

impl AdapterPlan {
    /// Returns the start of the adapter.
    fn spec(&self) -> AdapterSpec {
        match &self.start {
            Some(dir) => AdapterSpec::Load { dir: dir.clone(), dropout: self.lora.dropout },
            None => AdapterSpec::New(LoraSpec::from(&self.lora)),
        }
    }
}

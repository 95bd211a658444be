//! Worker groups and the policies on them: generation and updates on one base.
//!
//! - **RT-1** An update is a barrier: it runs after all generations sent before it, and before all sent after it.
//! - **RT-2** Every completion carries the number of updates of its policy.
//! - **RT-3** A worker's panic resolves every pending call to [`RuntimeError::Gone`].
//! - **K-1** A completion never depends on the other requests in a batch, to the bit.

mod adapter;
mod batch;
mod columns;
mod critic;
mod device;
mod direct;
mod engine;
mod error;
mod generator;
mod grammar;
mod host;
mod memory;
#[cfg(feature = "cuda")]
mod nccl;
mod optim;
mod optimizer;
mod packed;
#[cfg(feature = "cuda")]
mod parity;
mod peers;
#[cfg(feature = "cuda")]
mod predict;
mod queue;
mod request;
mod spec;
mod stats;
mod trainer;
mod watch;
mod work;
mod worker;

#[cfg(feature = "cuda")]
pub use crate::dist::NcclOptions;
pub use crate::message::Finish;
pub use adapter::{AdapterSpec, LoraSpec, TargetModules};
pub use batch::{
    Batch, CustomSurrogate, Objective, Row, ValueBatch, ValueRow, ValueTarget, ValueText,
};
pub use device::{DeviceChoice, WorkerDevice};
pub use direct::{Scores, complete, score};
#[doc(hidden)]
pub use generator::{Generating, Generator};
pub use grammar::{Grammar, GrammarState};
pub use host::{Host, KvBlocks};
pub use optim::{OptimOptions, Schedule};
#[cfg(feature = "cuda")]
#[doc(hidden)]
pub use parity::{DeviceKernels, StepDifference, compare_step};
#[cfg(feature = "cuda")]
#[doc(hidden)]
pub use predict::{MemoryPlan, Workload, predict};
pub use request::{Completion, Request, Sampling};
pub use spec::{CriticSpec, Dtype, Normalize, PolicySpec, RuntimeOptions, Trunk, WorkerSpec};
#[doc(hidden)]
pub use spec::{LARGE, LoraConfig, MANY, OptimConfig, REPLY, SamplingConfig};
pub use stats::{PairStats, UpdateStats, ValueStats};
pub use watch::{Step, Watch};
pub use {columns::TokenColumns, critic::Scale, error::RuntimeError};
pub use {memory::giving_back, work::EngineStats};

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use crate::dist::Ranks;
use crate::model::{ModelError, ModelErrorKind, Tokenizer};
use device::Devices;
use peers::Peers;
use worker::{Member, Worker};

/// Running worker groups.
pub struct Runtime {
    /// Requested number of threads; 0 is one per core.
    asked_threads: usize,
    devices: Devices,
    policies: Vec<Policy>,
    threads: Vec<JoinHandle<()>>,
}

/// A handle to one policy. Cheap to clone.
#[derive(Clone)]
pub struct Policy {
    name: Arc<str>,
    /// Index among the policies of its worker.
    slot: usize,
    worker: Worker,
    /// Generator in the place of the worker.
    generator: Option<Arc<dyn Generator>>,
}

impl Runtime {
    /// Loads every model and starts a thread for each worker group.
    ///
    /// # Errors
    ///
    /// If two policies have one name, a device cannot be used or a model not be loaded, or `MAVERL_SIMD` is invalid.
    pub fn start(workers: &[WorkerSpec], options: &RuntimeOptions) -> Result<Self, RuntimeError> {
        Self::start_on(workers, options, None)
    }

    /// Loads every model and starts a thread for each worker group, which updates its policies together with those of the
    /// other ranks. Every rank starts equal worker groups and calls their operations other than
    /// [`Policy::generate`] in the same order.
    ///
    /// # Errors
    ///
    /// See [`Runtime::start`].
    #[doc(hidden)]
    pub fn start_on(
        workers: &[WorkerSpec],
        options: &RuntimeOptions,
        ranks: Option<&Ranks>,
    ) -> Result<Self, RuntimeError> {
        distinct(workers)?;
        maverl_kernels::simd::select_path()?;
        memory::keep_freed();
        pool(options.threads)?;
        let devices = Devices::open(options.device, workers)?;
        let (mut policies, mut threads) = (Vec::new(), Vec::new());
        for (number, (spec, device)) in workers.iter().zip(devices.of_groups()).enumerate() {
            // Channel 0 is not of the runtime.
            let channel = ranks.map(|ranks| ranks.channel(number as u32 + 1));
            let peers = Peers::new(channel, options.shard_optimizer);
            let (worker, thread) = Worker::spawn(spec, options, device, &peers)?;
            threads.push(thread);
            policies.extend(spec.policies.iter().enumerate().map(|(slot, policy)| Policy {
                name: policy.name.as_str().into(),
                slot,
                worker: worker.clone(),
                generator: None,
            }));
        }
        policies.sort_by(|a: &Policy, b| a.name.cmp(&b.name));
        Ok(Self { asked_threads: options.threads, devices, policies, threads })
    }

    /// Returns differences from the options that change no result.
    pub fn notes(&self) -> Vec<String> {
        let (asked, found) = (self.asked_threads, rayon::current_num_threads());
        let other = asked != 0 && asked != found;
        let note = format!(
            "`runtime.threads` is {asked}, but the kernels of this process already have {found}: they are started once"
        );
        other.then_some(note).into_iter().collect()
    }

    /// Returns the policies of all worker groups, sorted by name.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Returns the policy of a name.
    pub fn policy(&self, name: &str) -> Option<&Policy> {
        self.policies.iter().find(|policy| policy.name() == name)
    }

    /// Waits until every thread has finished its jobs and ended. A handle keeps its thread alive, so drop all handles
    /// first.
    pub fn shutdown(self) {
        drop(self.policies);
        for thread in self.threads {
            // A panic was already reported, and its callers got `Gone` (RT-3).
            drop(thread.join());
        }
    }
}

/// Returns an error if two policies have one name.
fn distinct(workers: &[WorkerSpec]) -> Result<(), RuntimeError> {
    let mut names = BTreeSet::new();
    let all = workers.iter().flat_map(|worker| &worker.policies);
    match all.map(|policy| policy.name.as_str()).find(|name| !names.insert(*name)) {
        Some(name) => Err(RuntimeError::Duplicate { policy: name.to_owned() }),
        None => Ok(()),
    }
}

/// Starts the threads of the kernels: rayon's global pool. An existing pool, as with a second
/// runtime in one process, is kept: results do not depend on its size.
fn pool(threads: usize) -> Result<(), RuntimeError> {
    match rayon::ThreadPoolBuilder::new().num_threads(threads).build_global() {
        Err(error) if error.source().is_some() => {
            Err(RuntimeError::Threads { threads, reason: error.to_string() })
        }
        _ => Ok(()),
    }
}

impl Policy {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the tokenizer and chat template of its model.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.worker.tokenizer
    }

    /// Returns the maximum sequence length of its model, prompt and completion together.
    pub fn context(&self) -> usize {
        self.worker.context
    }

    /// Returns the number of ranks that update it together.
    #[doc(hidden)]
    pub fn ranks(&self) -> usize {
        self.worker.ranks
    }

    /// Returns the cost of its completions so far.
    pub fn work(&self) -> EngineStats {
        *self.worker.work[self.slot].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the blocks of the key-value cache of its worker group.
    #[doc(hidden)]
    pub fn kv_blocks(&self) -> &KvBlocks {
        &self.worker.blocks
    }

    /// Returns the bytes that its worker group takes of the memory of a device now, and at most so far; `None` on the CPU.
    #[cfg(feature = "cuda")]
    pub fn device_memory(&self) -> Option<[u64; 2]> {
        let usage = self.worker.usage.as_ref()?;
        Some([usage.used(), usage.high_water_mark()])
    }

    /// Updates the weights. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn update(&self, batch: Batch) -> Result<UpdateStats, RuntimeError> {
        batch.check().map_err(|source| self.failed(source))?;
        let job = move |member: &mut Member| Ok(member.update(&batch, None)?.0);
        self.worker.queue.at_barrier(self.slot, job).await
    }

    /// Makes the current weights the reference, if the plan keeps one for this policy. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn renew_reference(&self) -> Result<(), RuntimeError> {
        let job = |member: &mut Member| member.renew_reference();
        self.worker.queue.at_barrier(self.slot, job).await
    }

    /// Computes the log-probs of each row's completion under the reference: the starting weights, or those of the last
    /// [`Policy::renew_reference`].
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`]; also if no reference is kept for this policy.
    pub async fn reference(&self, rows: Vec<Row>) -> Result<Vec<Vec<f32>>, RuntimeError> {
        self.check(&rows)?;
        let job = move |member: &mut Member| member.reference(&rows);
        self.worker.queue.at_barrier(self.slot, job).await
    }

    /// Updates the weights and the critic on the same trunk, in the same optimizer steps. The texts of `values` are
    /// those of the rows. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`]; also if there is no critic on the trunk.
    pub async fn update_with_values(
        &self,
        batch: Batch,
        values: ValueBatch,
    ) -> Result<(UpdateStats, ValueStats), RuntimeError> {
        batch.check().map_err(|source| self.failed(source))?;
        let missing = self.no_critic();
        let job = move |member: &mut Member| match member.update(&batch, Some(&values))? {
            (policy, Some(critic)) => Ok((policy, critic)),
            (_, None) => Err(missing),
        };
        self.worker.queue.at_barrier(self.slot, job).await
    }

    /// Computes the current log-probs of the rows' completions, each `[T]`. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn logprobs(&self, rows: Vec<Row>) -> Result<Vec<Vec<f32>>, RuntimeError> {
        self.check(&rows)?;
        let job = move |member: &mut Member| member.logprobs(&rows);
        self.worker.queue.at_barrier(self.slot, job).await
    }

    /// Computes the values of texts by the policy's critic, each `[places]`. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`]; also if there is no critic.
    pub async fn values(&self, texts: Vec<ValueText>) -> Result<Vec<Vec<f32>>, RuntimeError> {
        let missing = self.no_critic();
        let job = move |member: &mut Member| member.values(&texts).unwrap_or(Err(missing));
        self.worker.queue.at_barrier(self.slot, job).await
    }

    /// Computes the states of texts by the trunk of the policy's critic, each `[D]`: the last hidden state at the
    /// position of the first value. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`]; also if there is no critic.
    pub async fn states(&self, texts: Vec<ValueText>) -> Result<Vec<Vec<f32>>, RuntimeError> {
        let missing = self.no_critic();
        let job = move |member: &mut Member| member.states(&texts).unwrap_or(Err(missing));
        self.worker.queue.at_barrier(self.slot, job).await
    }

    /// Updates the policy's critic, which has a trunk of its own. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`]; also if there is no critic, or it is on the policy's trunk.
    pub async fn update_critic(&self, batch: ValueBatch) -> Result<ValueStats, RuntimeError> {
        let missing = self.no_critic();
        let job = move |member: &mut Member| member.update_critic(&batch).unwrap_or(Err(missing));
        self.worker.queue.at_barrier(self.slot, job).await
    }

    fn no_critic(&self) -> RuntimeError {
        let message = format!("there is no critic beside policy `{}`", self.name);
        self.failed(ModelError::new(ModelErrorKind::Argument, message))
    }

    fn failed(&self, source: ModelError) -> RuntimeError {
        RuntimeError::Model { worker: self.worker.name.to_string(), source }
    }

    /// Returns an error if a row cannot be scored.
    fn check(&self, rows: &[Row]) -> Result<(), RuntimeError> {
        let mut rows = rows.iter().enumerate();
        rows.try_for_each(|(index, row)| row.check(index, Objective::Supervised))
            .map_err(|source| self.failed(source))
    }

    /// Writes the policy into an existing directory: a Hugging Face model directory or, if the policy is an adapter, a
    /// PEFT directory; plus `optimizer.safetensors` (moments and counters, for [`Policy::load`]).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn save(&self, dir: &Path) -> Result<(), RuntimeError> {
        let dir = dir.to_owned();
        self.on_model(move |member| member.save(&dir)).await
    }

    /// Takes part in [`Policy::save`] of rank 0; every other rank calls this meanwhile.
    #[doc(hidden)]
    pub async fn share(&self) -> Result<(), RuntimeError> {
        self.on_model(|member| member.share()).await
    }

    /// Restores weights, moments and version from a directory that [`Policy::save`] wrote.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn load(&self, dir: &Path) -> Result<(), RuntimeError> {
        let dir = dir.to_owned();
        self.on_model(move |member| member.load(&dir)).await
    }

    /// Computes the SHA-256 over every weight of the policy, in checkpoint order: equal exactly for equal bits.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn fingerprint(&self) -> Result<String, RuntimeError> {
        self.on_model(|member| member.fingerprint()).await
    }

    /// Runs an operation on files and weights. A barrier (RT-1).
    async fn on_model<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut Member) -> Result<T, ModelError> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let worker = self.worker.name.to_string();
        let job = move |member: &mut Member| {
            operation(member).map_err(|source| RuntimeError::Model { worker, source })
        };
        self.worker.queue.at_barrier(self.slot, job).await
    }
}

#[cfg(test)]
mod tests;

//! Memory of a device that a worker group takes, predicted without the device and without weights.
//!
//! The prediction runs the code of worker groups on a machine whose arrays hold nothing
//! ([`CountingMachine`](maverl_kernels::cuda::CountingMachine)), and reads the high-water mark. It therefore equals that of a device, for
//! the same work.

use std::ops::Range;
use std::sync::Arc;

use maverl_kernels::cuda::{CountingMachine, Kernels};
use tokio::sync::{Semaphore, oneshot};

use super::engine::Engine;
use super::peers::Peers;
use super::pools::Pools;
use super::queue::Hosted;
use super::worker::{Operations, OwnedModels, base_on, policies};
use super::{
    Batch, Request, Row, RuntimeError, RuntimeOptions, Sampling, Trunk, ValueBatch, ValueRow,
    ValueTarget, ValueText, WorkerSpec,
};
use crate::files::{HfConfig, ModelError};
use crate::net::Model;
use crate::net::ops::Backend;
use crate::net::ops::device::Device;
use crate::text::Tokenizer;

/// Longest row of [`Workload::largest`].
const ROW: usize = 1024;
/// Largest number of sequences whose pass is recorded.
const MOST_ROWS: usize = 1024;

/// Work whose memory is predicted.
#[derive(Debug, Clone, Default)]
pub struct Workload {
    /// Prompts that are completed at once.
    pub prompts: Vec<Vec<u32>>,
    /// Tokens of each completion.
    pub reply: usize,
    /// Update of each trained policy.
    pub batch: Batch,
    /// Update of each critic.
    pub values: Option<ValueBatch>,
}

/// Bytes that a worker group takes of the memory of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPlan {
    /// Weights of the base, and tables of positions.
    pub weights: u64,
    /// Two moments of each trained weight of policies.
    pub moments: u64,
    /// Adapters, references, and critics with their moments.
    pub others: u64,
    /// Keys and values and buffers of forward passes, during rollout.
    pub rollout: u64,
    /// Gradients of the largest policy.
    pub gradients: u64,
    /// Activations and logits of an update.
    pub activations: u64,
    /// Largest number of bytes at once.
    pub peak: u64,
}

impl MemoryPlan {
    /// Returns the bytes that are there in rollouts and in updates.
    pub fn resident(&self) -> u64 {
        self.weights + self.moments + self.others
    }
}

impl Workload {
    /// Creates an update by a micro-batch that is as large as the options allow, a prompt that is as long as they allow, and
    /// as many completions at once.
    pub fn largest(worker: &WorkerSpec, config: &HfConfig, options: &RuntimeOptions) -> Self {
        let vocab = config.vocab_size;
        let tokens = worker.options(options).micro_batch_tokens.get();
        let length = tokens.min(ROW).min(config.max_position_embeddings.saturating_sub(1)).max(2);
        let kl = worker.policies.iter().any(|policy| policy.reference);
        let rows = (0..(tokens / length).max(1)).map(|i| {
            // Prompts that no two rows share.
            let mut row = one_row(counted_ids(i..i + 1, vocab), counted_ids(0..length, vocab));
            row.loss.kl_coef = if kl { 0.1 } else { 0.0 };
            row
        });
        let rows: Vec<Row> = rows.collect();
        let critic = worker.policies.iter().any(|policy| policy.critic.is_some());
        let values = critic.then(|| {
            let rows = rows.iter().map(one_value_row).collect();
            ValueBatch { rows, minibatches: 1, epochs: 1, lr: 0.0 }
        });
        let longest = config.max_position_embeddings.saturating_sub(2);
        let prompt = counted_ids(0..options.prefill_tokens.get().min(longest).max(1), vocab);
        let batch = Batch { longest: length, rows, ..Batch::default() };
        // As many other sequences as are decoded together.
        let others = options.max_requests.get().min(MOST_ROWS) - 1;
        let others = (0..others).map(|i| counted_ids(i..i + 1, vocab));
        let prompts = std::iter::once(prompt).chain(others).collect();
        Self { prompts, reply: 2, batch, values }
    }
}

/// Returns a row with any log-probs and advantages.
fn one_row(prompt: Vec<u32>, completion: Vec<u32>) -> Row {
    let (logprobs, advantages) = (vec![0.0; completion.len()], vec![1.0; completion.len()]);
    Row { prompt, completion, logprobs, advantages, ..Row::default() }
}

/// Returns the row of a critic with the text of a row, and any values.
fn one_value_row(row: &Row) -> ValueRow {
    let places = row.completion.len();
    ValueRow {
        text: ValueText { ids: [&row.prompt[..], &row.completion].concat(), places },
        aim: ValueTarget::Returns { old: vec![0.0; places], returns: vec![0.0; places] },
    }
}

/// Returns ids that count up, and start again at the end of the vocabulary.
fn counted_ids(ids: Range<usize>, vocab: usize) -> Vec<u32> {
    ids.map(|i| (i % vocab) as u32).collect()
}

/// Predicts the memory of a worker group.
///
/// # Errors
///
/// If the worker group cannot be created, or the work fails.
pub fn predict(
    worker: &WorkerSpec,
    config: &HfConfig,
    tokenizer: &Arc<Tokenizer>,
    options: &RuntimeOptions,
    workload: &Workload,
) -> Result<MemoryPlan, RuntimeError> {
    let options = &worker.options(options);
    let ops = Device::new(Kernels::new(CountingMachine)).with_graphs(options.graphs);
    let usage = Arc::clone(ops.kernels().usage());
    let loaded = Model::shaped(config.clone()).map_err(|error| error.in_worker(&worker.name))?;
    let base = base_on(&ops, worker, &loaded).map_err(|error| error.in_worker(&worker.name))?;
    let weights = usage.used();
    let owned = policies(worker, options, (&base, &loaded), (&Pools::default(), &Peers::default()));
    let mut owned = owned.map_err(|error| error.in_worker(&worker.name))?;
    let _snapshots = snapshots(worker, &owned).map_err(|error| error.in_worker(&worker.name))?;
    let resident = usage.used();
    let trained = worker.policies.iter().zip(&owned).filter(|(policy, _)| policy.trained);
    let trained: Vec<u64> = trained.map(|(_, owned)| sums(owned)).collect();
    let moments: u64 = trained.iter().map(|bytes| 2 * bytes).sum();
    let gradients = trained.iter().copied().max().unwrap_or(0);
    let mut engine =
        Engine::new(&worker.name, Arc::clone(tokenizer), &ops, config, options, owned.len());
    complete(&mut engine, &owned, config, workload)?;
    let started = usage.high_water_mark();
    for at in 0..owned.len() {
        engine.forget(at);
    }
    usage.restart_peak();
    for (policy, owned) in worker.policies.iter().zip(&mut owned) {
        if !policy.trained {
            continue;
        }
        let shared = policy.critic.as_ref().is_some_and(|critic| critic.trunk == Trunk::Shared);
        let values = workload.values.as_ref();
        owned.update(&workload.batch, values.filter(|_| shared))?;
        if let Some(values) = values.filter(|_| !shared) {
            owned.update_critic(values).transpose()?;
        }
    }
    let updated = usage.high_water_mark();
    Ok(MemoryPlan {
        weights,
        moments,
        others: resident - weights - moments,
        rollout: started - resident,
        gradients,
        activations: updated.saturating_sub(resident + gradients),
        peak: started.max(updated),
    })
}

/// Returns the snapshots of policies in training.
fn snapshots<O: Backend>(
    worker: &WorkerSpec,
    owned: &[OwnedModels<O>],
) -> Result<Vec<Model<O>>, ModelError> {
    let trained = worker.policies.iter().zip(owned).filter(|(policy, _)| policy.trained);
    let copied = trained.flat_map(|(_, owned)| std::iter::repeat_n(&owned.model, worker.snapshots));
    copied.map(|model| model.copy(false)).collect()
}

/// Returns the bytes of an array of gradients of a policy.
fn sums(owned: &OwnedModels<Device<CountingMachine>>) -> u64 {
    (4 * owned.model.trainable().elements() as u64).max(1).next_multiple_of(512)
}

/// Completes the prompts at once.
fn complete(
    engine: &mut Engine<Device<CountingMachine>>,
    owned: &[OwnedModels<Device<CountingMachine>>],
    config: &HfConfig,
    workload: &Workload,
) -> Result<(), RuntimeError> {
    let admission = Arc::new(Semaphore::new(workload.prompts.len()));
    let sampling = Arc::new(Sampling { max_tokens: workload.reply, ..Sampling::default() });
    let mut answers = Vec::new();
    for prompt in &workload.prompts {
        // There is a permit for each prompt.
        let Ok(permit) = Arc::clone(&admission).try_acquire_owned() else { continue };
        let (reply, answer) = oneshot::channel();
        let request = Request::new(prompt.clone(), Arc::clone(&sampling), 0);
        engine.admit(0, config, 0, request, reply, permit);
        answers.push(answer);
    }
    while !engine.is_idle() {
        engine.step(owned.iter().map(Hosted::model));
    }
    for mut answer in answers {
        if let Ok(answer) = answer.try_recv() {
            answer?;
        }
    }
    Ok(())
}

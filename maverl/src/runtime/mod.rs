//! Worker groups and the policies on them: generation and updates on one base.
//!
//! - **RT-1** An update is a barrier: it runs after every generation sent before it has ended, and before any sent after.
//! - **RT-2** Every completion carries the number of updates its policy had seen.
//! - **RT-3** A worker's panic resolves every pending call to [`RuntimeError::Gone`].
//! - **K-1** A completion never depends on what else is in the batch, to the bit.

mod direct;
mod engine;
mod memory;
mod packed;
mod trainer;
mod work;
mod worker;

pub use crate::algo::{Batch, Objective, Row};
pub use direct::{Scores, complete, score};
pub use work::Work;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use crate::model::Tokenizer;
use crate::plan::{Plan, PolicyPlan, Sampling};
use crate::trajectory::Finish;
use worker::{Owned, Worker};

/// One request for a completion.
#[derive(Debug, Clone)]
pub struct Request {
    /// Token ids the model is given.
    pub prompt: Vec<u32>,
    /// How to sample; `max_tokens` is cut to what the context leaves.
    pub sampling: Arc<Sampling>,
    /// Of this request alone: the same prompt, sampling, weights and seed give the same completion.
    pub seed: u64,
}

/// What a policy completed.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// Sampled ids, stop id included.
    pub ids: Vec<u32>,
    /// Log-probability of each, under the temperature-scaled, unfiltered softmax.
    pub logprobs: Vec<f32>,
    /// Updates the policy had seen.
    pub version: u64,
    /// Why it ended.
    pub finish: Finish,
}

/// What an update did. Means are over true token counts.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct UpdateStats {
    /// The loss, mean over optimizer steps.
    pub loss: f64,
    /// Its surrogate part (or the negative log-likelihood).
    pub pg_loss: f64,
    /// KL to the reference, by the configured estimator; 0 without reference.
    pub kl: f64,
    /// Entropy in nats.
    pub entropy: f64,
    /// Share of tokens whose ratio was clipped from below, above, and by the dual bound.
    pub clip_frac_low: f64,
    /// See `clip_frac_low`.
    pub clip_frac_high: f64,
    /// See `clip_frac_low`.
    pub clip_frac_dual: f64,
    /// Mean of logp_old - logp (k1 to the rollout policy).
    pub ppo_kl: f64,
    /// Gradient norm before clipping, mean over optimizer steps.
    pub grad_norm: f64,
    /// |trainer log-prob - rollout log-prob| over the tokens seen before the first optimizer step: mean.
    pub mismatch_mean: f64,
    /// The same: largest.
    pub mismatch_max: f64,
    /// How much a token counts, in the mean, where the sampler's log-probs are corrected for.
    pub correction_mean: Option<f64>,
    /// Of pairs of replies.
    pub preference: Option<PairStats>,
    /// Optimizer steps taken.
    pub optimizer_steps: u64,
    /// Rows trained on.
    pub rows: u64,
    /// Completion tokens trained on.
    pub tokens: u64,
    /// The policy's version after the update.
    pub version: u64,
}

/// Means over pairs of replies, each as it stood before its optimizer step.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct PairStats {
    /// Implicit reward of the better reply: beta times the sum of its log-ratios to the reference.
    pub reward_chosen: f64,
    /// That of the other.
    pub reward_rejected: f64,
    /// Share of pairs in which the better reply has the higher one.
    pub accuracy: f64,
}

/// Why the runtime could not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// A worker's thread ended: a bug of ours, or memory ran out.
    #[error("worker group `{worker}` is gone: {reason}")]
    Gone {
        /// Its name.
        worker: String,
        /// What is known.
        reason: String,
    },
    /// The system does not give the threads that the kernels are to have.
    #[error("`runtime.threads` is {threads}: {reason}")]
    Threads {
        /// What was asked for; 0 is one per core.
        threads: usize,
        /// What the system says.
        reason: String,
    },
    /// The model could not be loaded, run or saved.
    #[error("worker group `{worker}`: {message}")]
    Model {
        /// Its name.
        worker: String,
        /// What happened.
        message: String,
    },
    /// A loss or gradient is not finite; the optimizer step it would have entered was not taken.
    #[error(
        "policy `{policy}`: {what} is not finite; the optimizer step was not taken. A smaller `optim.lr` or \
         `optim.grad_clip` usually helps"
    )]
    NotFinite {
        /// Its name.
        policy: String,
        /// Which number.
        what: String,
    },
    /// A prompt does not fit the context.
    #[error("a prompt of {prompt} tokens leaves no room in a context of {context}")]
    Overflow {
        /// Its length.
        prompt: usize,
        /// The model's context.
        context: usize,
    },
    /// A request does not fit the memory for keys and values, even alone.
    #[error(
        "worker group `{worker}`: a request of up to {tokens} tokens, where `runtime.kv_mib` has room for the keys and \
         values of {capacity}; raise it, or lower `sampling.max_tokens`"
    )]
    Memory {
        /// Its name.
        worker: String,
        /// Tokens of the prompt and of the longest completion.
        tokens: usize,
        /// Tokens that fit.
        capacity: usize,
    },
}

/// Every worker group of a plan, running.
pub struct Runtime {
    policies: Vec<Policy>,
    threads: Vec<JoinHandle<()>>,
}

/// A handle to one policy. Cheap to clone.
#[derive(Clone)]
pub struct Policy {
    name: Arc<str>,
    /// Its place among the policies of its worker.
    slot: usize,
    worker: Worker,
}

impl Runtime {
    /// Loads every model and starts a thread for each worker group.
    ///
    /// # Errors
    ///
    /// The first model that could not be loaded.
    pub fn start(plan: &Plan) -> Result<Self, RuntimeError> {
        memory::keep_freed();
        pool(plan.runtime.threads)?;
        let (mut policies, mut threads) = (BTreeMap::new(), Vec::new());
        for (index, worker) in plan.workers.iter().enumerate() {
            let on_it = || plan.policies.iter().enumerate().filter(|(_, p)| p.worker == index);
            let planned: Vec<&PolicyPlan> = on_it().map(|(_, policy)| policy).collect();
            let (worker, thread) = Worker::spawn(plan, worker, &planned)?;
            threads.push(thread);
            for (slot, (at, policy)) in on_it().enumerate() {
                let (name, worker) = (policy.name.as_str().into(), worker.clone());
                policies.insert(at, Policy { name, slot, worker });
            }
        }
        Ok(Self { policies: policies.into_values().collect(), threads })
    }

    /// What is not as the plan says, and changes no result.
    pub fn notes(&self, plan: &Plan) -> Vec<String> {
        let (asked, found) = (plan.runtime.threads, rayon::current_num_threads());
        let other = asked != 0 && asked != found;
        let note = || {
            format!(
                "`runtime.threads` is {asked}, but the kernels of this process already have {found}: they are started once"
            )
        };
        other.then(note).into_iter().collect()
    }

    /// The policies, in the plan's order.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Ends every thread after what it was sent, and waits for it. Handles that are still held keep theirs alive, so
    /// drop them first.
    pub fn shutdown(self) {
        drop(self.policies);
        for thread in self.threads {
            // A thread that panicked has said so, and its callers got `Gone` (RT-3).
            drop(thread.join());
        }
    }
}

/// Starts the threads of the kernels, which run on rayon's global pool, in autograd's own thread too. Where it is already
/// there, as for a second runtime in one process, it stays as it is: results do not depend on its size.
fn pool(threads: usize) -> Result<(), RuntimeError> {
    match rayon::ThreadPoolBuilder::new().num_threads(threads).build_global() {
        Err(error) if error.source().is_some() => {
            Err(RuntimeError::Threads { threads, reason: error.to_string() })
        }
        _ => Ok(()),
    }
}

impl Policy {
    /// The name in the plan.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tokenizer and chat template of its model.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.worker.tokenizer
    }

    /// Longest sequence of its model, prompt and completion together.
    pub fn context(&self) -> usize {
        self.worker.context
    }

    /// What its completions have cost so far.
    pub fn work(&self) -> Work {
        *self.worker.work[self.slot].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes a prompt. Waits for admission (`runtime.max_requests`). Dropping the future cancels the request.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn generate(&self, request: Request) -> Result<Completion, RuntimeError> {
        self.worker.generate(self.slot, request).await
    }

    /// Updates the weights. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn update(&self, batch: Batch) -> Result<UpdateStats, RuntimeError> {
        let job = move |Owned { model, trainer }: &mut Owned| trainer.update(model, &batch);
        self.worker.at_barrier(self.slot, job).await
    }

    /// Log-probs of the completion of each row under the reference, the frozen copy of the starting weights.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`]; that the plan keeps no reference for this policy is one.
    pub async fn reference(&self, rows: Vec<Row>) -> Result<Vec<Vec<f32>>, RuntimeError> {
        let job = move |Owned { trainer, .. }: &mut Owned| trainer.reference(&rows);
        self.worker.at_barrier(self.slot, job).await
    }

    /// Writes the policy into an existing directory: a Hugging Face model directory or, where the policy is an adapter, a
    /// PEFT directory; plus `optimizer.safetensors` (moments and counters, for [`Policy::load`]).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn save(&self, dir: &Path) -> Result<(), RuntimeError> {
        let (dir, worker) = (dir.to_owned(), self.worker.name.to_string());
        let job = move |owned: &mut Owned| {
            let saved =
                owned.model.save(&dir).and_then(|()| owned.trainer.save(&owned.model, &dir));
            saved.map_err(|e| RuntimeError::Model { worker, message: e.0 })
        };
        self.worker.at_barrier(self.slot, job).await
    }

    /// Reads weights, moments and version back from a directory that [`Policy::save`] wrote.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn load(&self, dir: &Path) -> Result<(), RuntimeError> {
        let (dir, worker) = (dir.to_owned(), self.worker.name.to_string());
        let job = move |owned: &mut Owned| {
            let loaded = owned.trainer.load(&owned.model, &dir);
            loaded.map_err(|e| RuntimeError::Model { worker, message: e.0 })
        };
        self.worker.at_barrier(self.slot, job).await
    }

    /// SHA-256 over every weight that the policy speaks with, in checkpoint order: equal exactly when the weights are
    /// equal to the bit.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn fingerprint(&self) -> Result<String, RuntimeError> {
        let worker = self.worker.name.to_string();
        let job = move |owned: &mut Owned| {
            let print = owned.model.fingerprint();
            print.map_err(|e| RuntimeError::Model { worker, message: e.0 })
        };
        self.worker.at_barrier(self.slot, job).await
    }
}

#[cfg(test)]
mod tests;

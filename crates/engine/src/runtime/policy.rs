//! Handles to policies: their operations on the threads of worker groups.

mod tops;

use std::path::Path;
use std::sync::{Arc, PoisonError};

use crate::files::ModelError;
use crate::files::save::TensorWriter;
use crate::runtime::checkpoint::PolicyCopy;
use crate::runtime::generator::{Generator, Published};
use crate::runtime::snapshots::SnapshotGenerator;
use crate::runtime::worker::{PolicyOperations, Worker};
use crate::runtime::{
    Batch, Completion, EngineStats, KvBlocks, Objective, Request, Row, RuntimeError, SavedMoments,
    UpdateStats, ValueBatch, ValueStats, ValueText,
};
use crate::text::Tokenizer;

/// A handle to one policy. Cheap to clone.
#[derive(Clone)]
pub struct Policy {
    pub(super) name: Arc<str>,
    /// Index among the policies of its worker.
    pub(super) slot: usize,
    pub(super) worker: Worker,
    /// Generator in the place of the worker.
    pub(super) generator: Option<Arc<dyn Generator>>,
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

    /// Returns the cost of its completions so far, those of its snapshots included.
    pub fn work(&self) -> EngineStats {
        let own = *self.worker.work[self.slot].lock().unwrap_or_else(PoisonError::into_inner);
        let snapshots = self.worker.snapshots.as_ref();
        own + snapshots.map(|all| all.work(self.slot)).unwrap_or_default()
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

    /// Returns the policy with another generator. Updates, log-probs and values stay with the worker group.
    #[doc(hidden)]
    #[must_use]
    pub fn with_generator(&self, generator: Arc<dyn Generator>) -> Self {
        Self { generator: Some(generator), ..self.clone() }
    }

    /// Copies the current weights into a place below [`WorkerSpec::snapshots`](super::WorkerSpec::snapshots), and returns the
    /// policy that generates with the copy until the place gets another one. Updates, log-probs and values stay with the
    /// worker group. Another generator keeps its weights itself; without that and without places, the policy is returned
    /// as it is. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn snapshot(&self, place: usize) -> Result<Self, RuntimeError> {
        if let Some(generator) = &self.generator {
            let pinned = generator.pinned();
            return Ok(pinned.map_or_else(|| self.clone(), |pinned| self.with_generator(pinned)));
        }
        let Some(snapshots) = self.worker.snapshots.clone() else { return Ok(self.clone()) };
        if let Some(placing) = self.on_model(move |member| member.snapshot(place)).await? {
            placing.await?;
        }
        let generator = SnapshotGenerator { snapshots, policy: self.slot, place };
        Ok(self.with_generator(Arc::new(generator)))
    }

    /// Completes a prompt. Waits for admission (`runtime.max_requests`). Dropping the future cancels the request.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn generate(&self, request: Request) -> Result<Completion, RuntimeError> {
        match &self.generator {
            Some(other) => other.generate(request).await,
            None => self.worker.queue.generate(self.slot, request).await,
        }
    }

    /// Returns the number of tokens sampled so far.
    #[doc(hidden)]
    pub fn sampled(&self) -> u64 {
        self.generator.as_ref().map_or_else(|| self.work().decoded, |other| other.sampled())
    }

    /// Returns the number of updates. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    #[doc(hidden)]
    pub async fn version(&self) -> Result<u64, RuntimeError> {
        self.worker.queue.at_barrier(self.slot, |member| Ok(member.version())).await
    }

    /// Writes the weights alone into an existing directory: a Hugging Face model directory or, if the policy is an adapter,
    /// a PEFT directory.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    #[doc(hidden)]
    pub async fn publish(&self, dir: &Path) -> Result<(), RuntimeError> {
        self.write(dir, Published::Current).await
    }

    /// Writes weights that differ from those of the policy in every number, as [`Policy::publish`] does: a generator that
    /// uses them has clearly different log-probs.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    #[doc(hidden)]
    pub async fn publish_perturbed(&self, dir: &Path) -> Result<(), RuntimeError> {
        self.write(dir, Published::Perturbed).await
    }

    async fn write(&self, dir: &Path, weights: Published) -> Result<(), RuntimeError> {
        let dir = dir.to_owned();
        self.on_model(move |member| member.publish(&dir, weights)).await
    }

    /// Updates the weights. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn update(&self, batch: Batch) -> Result<UpdateStats, RuntimeError> {
        batch.check().map_err(|source| self.failed_worker(source))?;
        let queue = &self.worker.queue;
        queue.at_barrier(self.slot, move |member| Ok(member.update(&batch, None)?.0)).await
    }

    /// Makes the current weights the reference, if the plan keeps one for this policy. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn renew_reference(&self) -> Result<(), RuntimeError> {
        self.worker.queue.at_barrier(self.slot, |member| member.renew_reference()).await
    }

    /// Moves the reference towards the current weights, if the plan keeps one for this policy: `share` is the weight of the
    /// current ones. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn mix_reference(&self, share: f64) -> Result<(), RuntimeError> {
        let queue = &self.worker.queue;
        queue.at_barrier(self.slot, move |member| member.mix_reference(share)).await
    }

    /// Computes the log-probs of each row's completion under the reference: the starting weights, or those of the last
    /// [`Policy::renew_reference`] or [`Policy::mix_reference`].
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`]; also if no reference is kept for this policy.
    pub async fn reference(&self, rows: Vec<Row>) -> Result<Vec<Vec<f32>>, RuntimeError> {
        self.check(&rows)?;
        self.worker.queue.at_barrier(self.slot, move |member| member.reference(&rows)).await
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
        batch.check().map_err(|source| self.failed_worker(source))?;
        let queue = &self.worker.queue;
        let updated =
            queue.at_barrier(self.slot, move |member| member.update(&batch, Some(&values)));
        let (policy, critic) = updated.await?;
        Ok((policy, critic.ok_or_else(|| self.no_critic())?))
    }

    /// Computes the current log-probs of the rows' completions, each `[T]`. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn logprobs(&self, rows: Vec<Row>) -> Result<Vec<Vec<f32>>, RuntimeError> {
        self.check(&rows)?;
        self.worker.queue.at_barrier(self.slot, move |member| member.logprobs(&rows)).await
    }

    /// Computes the values of texts by the policy's critic, each `[places]`. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`]; also if there is no critic.
    pub async fn values(&self, texts: Vec<ValueText>) -> Result<Vec<Vec<f32>>, RuntimeError> {
        self.on_critic(move |member| member.values(&texts)).await
    }

    /// Computes the states of texts by the trunk of the policy's critic, each `[D]`: the last hidden state at the
    /// position of the first value. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`]; also if there is no critic.
    pub async fn states(&self, texts: Vec<ValueText>) -> Result<Vec<Vec<f32>>, RuntimeError> {
        self.on_critic(move |member| member.states(&texts)).await
    }

    /// Updates the policy's critic, which has a trunk of its own. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`]; also if there is no critic, or it is on the policy's trunk.
    pub async fn update_critic(&self, batch: ValueBatch) -> Result<ValueStats, RuntimeError> {
        self.on_critic(move |member| member.update_critic(&batch)).await
    }

    fn no_critic(&self) -> RuntimeError {
        let message = format!("there is no critic beside policy `{}`", self.name);
        self.failed_worker(ModelError::wrong_argument(message))
    }

    fn failed_worker(&self, source: ModelError) -> RuntimeError {
        source.in_worker(&*self.worker.name)
    }

    /// Returns an error if a row cannot be scored.
    fn check(&self, rows: &[Row]) -> Result<(), RuntimeError> {
        let mut rows = rows.iter().enumerate();
        rows.try_for_each(|(index, row)| row.check(index, Objective::Supervised))
            .map_err(|source| self.failed_worker(source))
    }

    /// Writes the policy into an existing directory: a Hugging Face model directory or, if the policy is an adapter, a
    /// PEFT directory; plus `optimizer.safetensors` (moments and counters, for [`Policy::load`]).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn save(&self, dir: &Path) -> Result<(), RuntimeError> {
        self.save_with(dir, SavedMoments::F32).await
    }

    /// Writes the policy like [`Policy::save`], with moments of a choice. [`Policy::load`] restores what was written: without
    /// moments, they and the number of optimizer steps are zero.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn save_with(&self, dir: &Path, moments: SavedMoments) -> Result<(), RuntimeError> {
        let (dir, mut writer) = (dir.to_owned(), TensorWriter::Direct);
        self.on_model(move |member| member.save(&dir, moments, &mut writer)).await
    }

    /// Writes the small files of [`Policy::save_with`], and copies the tensors of the others in memory, on all threads.
    /// [`PolicyCopy::write`] writes these, so the policy need not wait for the disk.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn copy_with(
        &self,
        dir: &Path,
        moments: SavedMoments,
    ) -> Result<PolicyCopy, RuntimeError> {
        let (dir, mut writer) = (dir.to_owned(), TensorWriter::copying(&self.worker.spare));
        let copied = self.on_model(move |member| {
            member.save(&dir, moments, &mut writer)?;
            Ok(writer.into_copies())
        });
        Ok(PolicyCopy { files: copied.await?, worker: Arc::clone(&self.worker.name) })
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

    /// Runs a function at a barrier (RT-1), on the thread of the worker group.
    #[cfg(test)]
    pub(super) async fn at_barrier_for_test(&self, function: impl FnOnce() + Send + 'static) {
        let run = move |_: &mut _| {
            function();
            Ok(())
        };
        drop(self.worker.queue.at_barrier(self.slot, run).await);
    }

    /// Runs an operation on files and weights. A barrier (RT-1).
    async fn on_model<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut PolicyOperations) -> Result<T, ModelError> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let done = self.worker.queue.at_barrier(self.slot, move |member| Ok(operation(member)));
        done.await?.map_err(|source| self.failed_worker(source))
    }

    /// Runs an operation on the critic; fails if there is none. A barrier (RT-1).
    async fn on_critic<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut PolicyOperations) -> Option<Result<T, RuntimeError>>
        + Send
        + 'static,
    ) -> Result<T, RuntimeError> {
        let queue = &self.worker.queue;
        let done = queue.at_barrier(self.slot, move |member| operation(member).transpose());
        done.await?.ok_or_else(|| self.no_critic())
    }
}

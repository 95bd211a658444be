//! Models that come and go on one base: adapters that are trained in passes and steps of their own, and adapters that only
//! generate.

use std::path::Path;
use std::sync::Arc;

use super::host::{ModelHost, start_places};
use super::peers::Peers;
use super::pools::Pools;
use super::queue::Hosted;
use super::trainer::{PendingPass, Trainer};
use super::{
    AdapterSpec, Batch, Dtype, LoraSpec, OptimOptions, PolicySpec, Row, RuntimeError,
    RuntimeOptions, SavedMoments,
};
use crate::files::save::TensorWriter;
use crate::files::{HfConfig, ModelError};
use crate::loss::PolicyLoss;
use crate::net::ops::{Backend as _, Cpu};
use crate::net::{Adapter, Model, PendingSums};
use crate::text::Tokenizer;

/// Model of a place, and its training if it has one.
pub struct TrainedModel {
    model: Model,
    /// Training of the model; `None` if it only generates.
    training: Option<Training>,
    buffers: TrainingBuffers,
}

/// Buffers of the passes of all places, and the tokens of a micro-batch.
#[derive(Clone)]
struct TrainingBuffers {
    micro_batch_tokens: usize,
    pools: Pools<Cpu>,
}

impl TrainedModel {
    /// Replaces the model by one that only generates.
    fn generate_with(&mut self, model: Model) -> Result<(), RuntimeError> {
        (self.model, self.training) = (model, None);
        Ok(())
    }

    /// Replaces the model by one that is trained.
    fn train(&mut self, model: Model, spec: &PolicySpec) -> Result<(), ModelError> {
        let TrainingBuffers { micro_batch_tokens, pools } = self.buffers.clone();
        // Adapters have no dropout, so no pass draws a mask from this seed.
        let (seed, buffers) = ((0, None), (pools, Peers::default()));
        let trainer = Trainer::new(spec, &model, seed, micro_batch_tokens, buffers)?;
        (self.model, self.training) = (model, Some(Training { trainer, pending: None }));
        Ok(())
    }
}

/// Training of a model, and the gradients of the passes since its last step.
struct Training {
    trainer: Trainer<Cpu>,
    pending: Option<PendingSums<Cpu>>,
}

impl Hosted<Cpu> for TrainedModel {
    fn model(&self) -> &Model {
        &self.model
    }

    fn version(&self) -> u64 {
        self.training.as_ref().map_or(0, |training| training.trainer.version)
    }
}

/// Result of a pass over rows.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PassResult {
    /// Log-probs of the targets of each row, `[rows][T]`.
    pub logprobs: Vec<Vec<f32>>,
    /// Sums of the losses over all tokens, not divided by anything.
    pub loss: PolicyLoss,
}

impl From<PendingPass> for PassResult {
    fn from(PendingPass { logprobs, loss }: PendingPass) -> Self {
        Self { logprobs, loss }
    }
}

/// A host of adapters that are trained, and of adapters that only generate.
pub type TrainingHost = ModelHost<TrainedModel>;

impl ModelHost<TrainedModel> {
    /// Starts a thread with `places` places, each of which holds the base itself at first.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`]; also if the device is not the CPU, or `dtype` is neither f32 nor bf16: clients see the gradients of their
    /// passes, which have no scale.
    pub fn start(
        name: &str,
        base: &Model,
        tokenizer: &Arc<Tokenizer>,
        (options, dtype): (&RuntimeOptions, Dtype),
        places: usize,
    ) -> Result<Self, RuntimeError> {
        if matches!(dtype, Dtype::F16 | Dtype::File) {
            let what = "models of clients are not trained in f16, or on the blocks of a file; write bf16 or f32";
            return Err(ModelError::wrong_argument(what).in_worker(name));
        }
        let load = || Cpu { precision: dtype.into() }.load(base.clone(), false);
        let micro_batch_tokens = options.micro_batch_tokens.get();
        let buffers = TrainingBuffers { micro_batch_tokens, pools: Pools::default() };
        let hold = |model| TrainedModel { model, training: None, buffers: buffers.clone() };
        let places = (places, "models of clients are trained");
        start_places(name, tokenizer, options, places, load, hold)
    }

    /// Returns the bytes that an adapter takes while it is trained: weights, gradients and two moments.
    ///
    /// # Errors
    ///
    /// If a target module is not in the base.
    pub fn adapter_bytes(base: &HfConfig, lora: &LoraSpec) -> Result<u64, ModelError> {
        let targets = lora.on(base).targets(base)?;
        let numbers = targets.iter().map(|target| target.rank * (target.input + target.output));
        Ok(16 * numbers.sum::<usize>() as u64)
    }

    /// Puts a new adapter, drawn from a seed, into a place, to be trained.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn create(
        &self,
        place: usize,
        lora: &LoraSpec,
        seed: u64,
    ) -> Result<(), RuntimeError> {
        let adapter = Adapter::new(&self.base.config, lora.on(&self.base.config), seed);
        self.put_trained(place, adapter, AdapterSpec::New(lora.clone())).await
    }

    /// Puts the adapter of a directory that [`TrainingHost::save`] wrote into a place, to be trained. Its moments are restored
    /// if `optimizer` says so, else they are zero. Reading the file blocks the thread of the caller.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn create_from(
        &self,
        place: usize,
        dir: &Path,
        optimizer: bool,
    ) -> Result<(), RuntimeError> {
        let adapter = Adapter::load(dir, &self.base.config);
        let spec = AdapterSpec::Load { dir: dir.to_owned(), dropout: 0.0 };
        self.put_trained(place, adapter, spec).await?;
        if optimizer { self.restore(place, dir, true).await } else { Ok(()) }
    }

    async fn put_trained(
        &self,
        place: usize,
        adapter: Result<Adapter, ModelError>,
        spec: AdapterSpec,
    ) -> Result<(), RuntimeError> {
        let model = adapter.and_then(|adapter| {
            Ok(self.base.with_adapter(adapter.on(self.base.decoder.ops(), true)?))
        });
        let model = model.map_err(|error| error.in_worker(&*self.name))?;
        let spec = PolicySpec { adapter: Some(spec), ..PolicySpec::new(&*self.name) };
        let name = Arc::clone(&self.name);
        let train = move |held: &mut TrainedModel| {
            held.train(model, &spec).map_err(|error| error.in_worker(&*name))
        };
        self.queue.at_barrier(place, train).await
    }

    /// Puts an adapter from a PEFT directory into a place, to generate. Reading the file blocks the thread of the caller.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn load_adapter(&self, place: usize, dir: &Path) -> Result<(), RuntimeError> {
        let model = self.base.load_adapter(dir).map_err(|error| error.in_worker(&*self.name))?;
        self.put_generating(place, model).await
    }

    /// Puts the base back into a place.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn unload(&self, place: usize) -> Result<(), RuntimeError> {
        self.put_generating(place, self.base.clone()).await
    }

    async fn put_generating(&self, place: usize, model: Model) -> Result<(), RuntimeError> {
        self.queue.at_barrier(place, move |held| held.generate_with(model)).await
    }

    /// Computes the losses of a batch and their gradients, which are added to those since the last step. Of the batch, rows,
    /// objective and surrogate count.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`]; after a loss that is not finite, all gradients since the last step are gone.
    pub async fn forward_backward(
        &self,
        place: usize,
        batch: Batch,
    ) -> Result<PassResult, RuntimeError> {
        self.check(&batch)?;
        let pass = self.on_training(place, move |model, training| {
            training.trainer.forward_backward(model, &batch, &mut training.pending)
        });
        Ok(pass.await?.into())
    }

    /// Computes the losses of a batch without gradients.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn forward(&self, place: usize, batch: Batch) -> Result<PassResult, RuntimeError> {
        self.check(&batch)?;
        let pass = self.on_training(place, move |model, training| {
            training.trainer.forward_only(model, &batch)
        });
        Ok(pass.await?.into())
    }

    /// Takes an optimizer step with the gradients since the last step. Returns their norm; `None`, and takes no step, if there
    /// are none.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn optim_step(
        &self,
        place: usize,
        options: OptimOptions,
    ) -> Result<Option<f64>, RuntimeError> {
        let step = self.on_training(place, move |model, Training { trainer, pending }| {
            let pending = pending.take();
            pending.map(|pending| trainer.optim_step(model, pending, options)).transpose()
        });
        step.await
    }

    /// Writes an adapter as PEFT does, and `optimizer.safetensors` beside it, into an existing directory: the layout of a policy
    /// in a checkpoint of a run.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn save(&self, place: usize, dir: &Path) -> Result<(), RuntimeError> {
        let (dir, name) = (dir.to_owned(), Arc::clone(&self.name));
        let saved = self.on_training(place, move |model, training| {
            let written = model.save(&dir).and_then(|()| {
                training.trainer.save(&dir, SavedMoments::F32, &mut TensorWriter::Direct)
            });
            written.map_err(|error| error.in_worker(&*name))
        });
        saved.await
    }

    /// Writes an adapter alone, as PEFT does, into an existing directory.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn publish(&self, place: usize, dir: &Path) -> Result<(), RuntimeError> {
        let (dir, name) = (dir.to_owned(), Arc::clone(&self.name));
        let saved = self.on_training(place, move |model, _| {
            model.save(&dir).map_err(|error| error.in_worker(&*name))
        });
        saved.await
    }

    /// Restores the weights of an adapter of the same shape from a directory that [`TrainingHost::save`] wrote, and its moments
    /// if `optimizer` says so, which else are zero. Gradients since the last step are gone.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn restore(
        &self,
        place: usize,
        dir: &Path,
        optimizer: bool,
    ) -> Result<(), RuntimeError> {
        let (dir, name) = (dir.to_owned(), Arc::clone(&self.name));
        let restored = self.on_training(place, move |model, training| {
            training.pending = None;
            let trainer = &mut training.trainer;
            let restored = if optimizer {
                trainer.load(model, &dir)
            } else {
                trainer.load_weights(model, &dir)
            };
            restored.map_err(|error| error.in_worker(&*name))
        });
        restored.await
    }

    /// Computes the SHA-256 over all weights of an adapter.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn fingerprint(&self, place: usize) -> Result<String, RuntimeError> {
        self.queue.at_barrier(place, |held| Ok(held.model.fingerprint())).await
    }

    fn check(&self, batch: &Batch) -> Result<(), RuntimeError> {
        let other = |row: &Row| row.teacher.is_some() || row.observation.is_some();
        let checked = batch.check().and_then(|()| match batch.rows.iter().position(other) {
            None => Ok(()),
            Some(index) => Err(ModelError::wrong_argument(format!(
                "row {index} has a teacher or is an observation, which only an update of a policy trains on"
            ))),
        });
        checked.map_err(|error| error.in_worker(&*self.name))
    }

    /// Runs an operation on a model that is trained. A barrier (RT-1).
    async fn on_training<R: Send + 'static>(
        &self,
        place: usize,
        operation: impl FnOnce(&Model, &mut Training) -> Result<R, RuntimeError> + Send + 'static,
    ) -> Result<R, RuntimeError> {
        let name = Arc::clone(&self.name);
        let run = move |held: &mut TrainedModel| {
            operation(&held.model, trained(&mut held.training, place, &name)?)
        };
        self.queue.at_barrier(place, run).await
    }
}

/// Returns the parts that train the model of a place.
fn trained<'t>(
    training: &'t mut Option<Training>,
    place: usize,
    name: &str,
) -> Result<&'t mut Training, RuntimeError> {
    training.as_mut().ok_or_else(|| {
        let message = format!("the model in place {place} is not trained");
        ModelError::wrong_argument(message).in_worker(name)
    })
}

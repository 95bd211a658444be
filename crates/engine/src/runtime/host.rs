//! A base and models in places on it, without critics or a plan: adapters that only generate here, adapters that are trained in
//! `training_host.rs`.
//!
//! A host has the queue of a worker group, so barriers, cancellation and RT-3 are the same. What one place holds changes no number
//! of another (K-1).

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::device::{KEY, refused_device};
use super::engine::Engine;
use super::pools::BarrierLimit;
use super::queue::{Hosted, WorkerQueue};
use super::start::start_threads;
use super::{Completion, DeviceChoice, EngineStats, Request, RuntimeError, RuntimeOptions, memory};
use crate::files::ModelError;
use crate::net::Model;
use crate::net::ops::Cpu;
use crate::text::Tokenizer;

/// A model that only generates, with the number of its updates.
pub struct LoadedModel {
    model: Model,
    version: u64,
}

impl Hosted<Cpu> for LoadedModel {
    fn model(&self) -> &Model {
        &self.model
    }

    fn version(&self) -> u64 {
        self.version
    }
}

/// Blocks of the key-value cache, as they were after the last forward pass.
#[derive(Debug, Default)]
pub struct KvBlocks {
    pub(in crate::runtime) used: AtomicUsize,
    pub(in crate::runtime) cached: AtomicUsize,
    pub(in crate::runtime) free: AtomicUsize,
}

impl KvBlocks {
    /// Returns the numbers of blocks of running requests, of blocks that only cache prefixes, and of free ones.
    pub fn counts(&self) -> [usize; 3] {
        [&self.used, &self.cached, &self.free].map(|count| count.load(Ordering::Relaxed))
    }
}

/// A thread that owns a base, and models of kind `M` in places on it. Cheap to clone; the thread ends after the last handle is
/// dropped.
///
/// Completions equal, to the bit, those of a policy with the same weights (K-1).
pub struct ModelHost<M> {
    pub(super) name: Arc<str>,
    pub(super) queue: WorkerQueue<M>,
    pub(super) base: Model,
    tokenizer: Arc<Tokenizer>,
    places: usize,
    context: usize,
    work: Arc<[Arc<Mutex<EngineStats>>]>,
    blocks: Arc<KvBlocks>,
}

/// A host of models that only generate.
pub type Host = ModelHost<LoadedModel>;

impl<M> Clone for ModelHost<M> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            queue: self.queue.clone(),
            base: self.base.clone(),
            tokenizer: Arc::clone(&self.tokenizer),
            work: Arc::clone(&self.work),
            blocks: Arc::clone(&self.blocks),
            ..*self
        }
    }
}

impl<M: 'static> ModelHost<M> {
    /// Returns the number of places.
    pub fn places(&self) -> usize {
        self.places
    }

    /// Returns the base.
    pub fn base(&self) -> &Model {
        &self.base
    }

    /// Returns the tokenizer and chat template.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Returns the maximum sequence length, prompt and completion together: that of the model, or what
    /// `runtime.kv_mib` has room for.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Returns the cost of all completions so far.
    pub fn work(&self) -> Vec<EngineStats> {
        self.work.iter().map(|work| *work.lock().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    /// Returns the blocks of the key-value cache.
    pub fn blocks(&self) -> &Arc<KvBlocks> {
        &self.blocks
    }

    /// Completes a prompt with the model of a place. Dropping the future cancels the request at the next forward pass.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn generate(
        &self,
        place: usize,
        request: Request,
    ) -> Result<Completion, RuntimeError> {
        self.queue.generate(place, request).await
    }
}

impl ModelHost<LoadedModel> {
    /// Starts a thread with `places` places for models. All hold the base itself at first, whose weights are kept in one form
    /// for generation: the rows of its maps are freed with the caller's model.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub fn start(
        name: &str,
        base: &Model,
        tokenizer: &Arc<Tokenizer>,
        options: &RuntimeOptions,
        places: usize,
    ) -> Result<Self, RuntimeError> {
        let load = || base.clone().for_generation();
        let places = (places, "models are served");
        let hold = |model| LoadedModel { model, version: 0 };
        start_places(name, tokenizer, options, places, load, hold)
    }

    /// Puts an adapter from a PEFT directory into a place; `version` is the number of its updates. Waits for the running
    /// requests. Reading the file blocks the thread of the caller. Returns the SHA-256 of the weights.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`]; also if the directory has no adapter for the base.
    pub async fn load_adapter(
        &self,
        place: usize,
        dir: &Path,
        version: u64,
    ) -> Result<String, RuntimeError> {
        let model = self.base.load_adapter(dir);
        let model = model.map_err(|error| error.in_worker(self.base.base_name()))?;
        let fingerprint = model.fingerprint();
        self.put_model(place, model, version).await?;
        Ok(fingerprint)
    }

    /// Puts the base back into a place.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn unload(&self, place: usize, version: u64) -> Result<(), RuntimeError> {
        self.put_model(place, self.base.clone(), version).await
    }

    async fn put_model(
        &self,
        place: usize,
        model: Model,
        version: u64,
    ) -> Result<(), RuntimeError> {
        let loaded = LoadedModel { model, version };
        self.queue.at_barrier(place, move |old| replace_loaded(old, loaded)).await
    }
}

/// Replaces the model of a place.
fn replace_loaded(old: &mut LoadedModel, new: LoadedModel) -> Result<(), RuntimeError> {
    *old = new;
    Ok(())
}

/// Starts a thread whose places hold these models. `load` makes the device's form of the base, which every model has.
pub(super) fn start_places<M: Hosted<Cpu>>(
    name: &str,
    tokenizer: &Arc<Tokenizer>,
    options: &RuntimeOptions,
    (places, use_of): (usize, &str),
    load: impl FnOnce() -> Result<Model, ModelError>,
    hold: impl Fn(Model) -> M,
) -> Result<ModelHost<M>, RuntimeError> {
    if !matches!(options.device, DeviceChoice::Cpu | DeviceChoice::Auto) {
        let reason = format!("{use_of} on the CPU alone: write `runtime.device = \"cpu\"`");
        return Err(refused_device(KEY, options.device, reason));
    }
    maverl_kernels::simd::select_path()?;
    memory::keep_freed();
    start_threads(options.threads)?;
    let base = load().map_err(|error| error.in_worker(name))?;
    let (ops, spoken) = (base.decoder.ops(), Arc::clone(tokenizer));
    let engine = Engine::new(name, spoken, ops, &base.config, options, places);
    let (work, blocks) = (engine.work().into(), engine.blocks());
    let context = base.config.max_position_embeddings.min(engine.capacity());
    let held = (0..places).map(|_| hold(base.clone())).collect();
    let (name, requests): (Arc<str>, usize) = (name.into(), options.max_requests.get());
    let threads = (None, BarrierLimit::default());
    // The thread is not joined: it ends with the last handle.
    let (queue, _) = WorkerQueue::start(&name, held, (engine, threads), requests, |held| held)?;
    let tokenizer = Arc::clone(tokenizer);
    Ok(ModelHost { name, queue, base, tokenizer, places, context, work, blocks })
}

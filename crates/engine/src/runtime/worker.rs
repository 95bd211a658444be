//! A worker group: one thread that owns one base model and the policies on it.
//!
//! A *policy* is either the weights of the base, or one adapter on it while the base is frozen. It has an optimizer and
//! a version. In the thread, it is a model: a decoder, and its trainable parameters in one array. Gradients and moments
//! have the same layout, so a step of AdamW is one operation. Other threads hold a handle, [`Policy`](super::Policy).
//! All worker groups compute on one rayon pool.

mod operations;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

#[cfg(feature = "cuda")]
use maverl_kernels::cuda::MemoryUsage;
use maverl_kernels::sample::derive_seed;

use crate::files::perturb;
use crate::files::save::{SpareMemory, TensorWriter};
use crate::files::{ModelError, ModelFiles};
#[cfg(feature = "cuda")]
use crate::net::ops::device::{Device, Runner};
use crate::net::ops::{Backend, Cpu};
use crate::net::{Adapter, Model};
use crate::runtime::critic::{Critic, SharedTrunk};
use crate::runtime::device::OpenDevice;
use crate::runtime::engine::Engine;
use crate::runtime::generator::Published;
use crate::runtime::packed::Support;
use crate::runtime::peers::Peers;
use crate::runtime::pools::{BarrierLimit, Pools};
use crate::runtime::queue::{Hosted, WorkerQueue};
use crate::runtime::snapshots::{Placing, PolicySnapshots, SnapshotThread, Snapshots};
use crate::runtime::trainer::Trainer;
use crate::runtime::{
    AdapterSpec, Batch, Dtype, EngineStats, KvBlocks, PolicySpec, Row, RuntimeError,
    RuntimeOptions, SavedMoments, TopTokens, UpdateStats, ValueBatch, ValueStats, ValueText,
    WorkerSpec,
};
use crate::text::Tokenizer;

pub(crate) use operations::{Operations, PolicyOperations};

/// A policy in its worker. All models of a worker share the storage of its base.
pub(super) struct OwnedModels<O: Backend> {
    pub(super) model: Model<O>,
    trainer: Trainer<O>,
    /// Critic of the policy, if it has one.
    critic: Option<Critic<O>>,
    /// Places for snapshots, if the worker group has some.
    snapshots: Option<PolicySnapshots<O>>,
}

/// Constant that separates the seed of a critic's adapter from its policy's.
const CRITIC: u64 = 0x0063_7269_7469_6300;

impl<O: Backend> OwnedModels<O> {
    /// Creates the policy: the base itself, or an adapter on it, loaded from its start or initialized from the seed and
    /// its name.
    fn new(
        (worker, options): (&WorkerSpec, &RuntimeOptions),
        policy: &PolicySpec,
        (base, loaded): (&Model<O>, &Model),
        (pools, peers): (Pools<O>, Peers),
    ) -> Result<Self, ModelError> {
        let ops = base.decoder.ops();
        let seed =
            policy.name.bytes().fold(options.seed, |seed, byte| derive_seed(seed, u64::from(byte)));
        let model = match &policy.adapter {
            None => base.clone(),
            Some(AdapterSpec::New(lora)) => {
                let adapter = Adapter::new(&base.config, lora.on(&base.config), seed)?;
                base.with_adapter(adapter.on(ops, policy.trained)?)
            }
            Some(AdapterSpec::Load { dir, dropout }) => {
                let adapter = Adapter::load(dir, &base.config)?.with_dropout(*dropout)?;
                base.with_adapter(adapter.on(ops, policy.trained)?)
            }
        };
        let micro_batch_tokens = options.micro_batch_tokens.get();
        let (seed_of_critic, scale) = (derive_seed(seed, CRITIC), worker.first_scale()?);
        let critic = policy.critic.as_ref();
        let critic = critic.map(|critic| {
            Critic::new(
                critic,
                policy,
                (base, loaded),
                (seed_of_critic, scale, micro_batch_tokens),
                (pools.clone(), peers.clone()),
            )
        });
        let critic = critic.transpose()?;
        let seed = (seed, scale);
        let trainer = Trainer::new(policy, &model, seed, micro_batch_tokens, (pools, peers))?;
        Ok(Self { model, trainer, critic, snapshots: None })
    }
}

impl<O: Backend> OwnedModels<O> {
    fn member(&mut self) -> &mut PolicyOperations {
        self
    }
}

impl<O: Backend> Operations for OwnedModels<O> {
    fn update(
        &mut self,
        batch: &Batch,
        values: Option<&ValueBatch>,
    ) -> Result<(UpdateStats, Option<ValueStats>), RuntimeError> {
        let mut shared = match (&mut self.critic, values) {
            (Some(critic), Some(values)) => Some(SharedTrunk::new(critic, values)?),
            _ => None,
        };
        let stats = self.trainer.update(&self.model, batch, shared.as_mut())?;
        Ok((stats, shared.map(|shared| shared.stats())))
    }

    fn renew_reference(&mut self) -> Result<(), RuntimeError> {
        self.trainer.renew_reference(&self.model)
    }

    fn mix_reference(&mut self, share: f64) -> Result<(), RuntimeError> {
        self.trainer.mix_reference(&self.model, share)
    }

    fn reference(&self, rows: &[Row]) -> Result<Vec<Vec<f32>>, RuntimeError> {
        self.trainer.reference(rows)
    }

    fn logprobs(&self, rows: &[Row]) -> Result<Vec<Vec<f32>>, RuntimeError> {
        self.trainer.logprobs(&self.model, rows)
    }

    fn top_tokens(&self, rows: &[Row], support: Support) -> Result<Vec<TopTokens>, RuntimeError> {
        self.trainer.top_tokens(&self.model, rows, support)
    }

    fn reference_top_tokens(
        &self,
        rows: &[Row],
        support: Support,
    ) -> Result<Vec<TopTokens>, RuntimeError> {
        self.trainer.reference_top_tokens(rows, support)
    }

    fn values(&self, texts: &[ValueText]) -> Option<Result<Vec<Vec<f32>>, RuntimeError>> {
        self.critic.as_ref().map(|critic| critic.values(&self.model, texts))
    }

    fn states(&self, texts: &[ValueText]) -> Option<Result<Vec<Vec<f32>>, RuntimeError>> {
        self.critic.as_ref().map(|critic| critic.states(&self.model, texts))
    }

    fn update_critic(&mut self, batch: &ValueBatch) -> Option<Result<ValueStats, RuntimeError>> {
        self.critic.as_mut().map(|critic| critic.update(batch))
    }

    fn save(
        &self,
        dir: &Path,
        moments: SavedMoments,
        writer: &mut TensorWriter,
    ) -> Result<(), ModelError> {
        self.model.decoder.ops().host(&self.model)?.save_with(dir, writer)?;
        self.trainer.save(dir, moments, writer)?;
        self.critic.as_ref().map_or(Ok(()), |critic| critic.save(dir, moments, writer))
    }

    fn share(&self) -> Result<(), ModelError> {
        self.trainer.share()?;
        self.critic.as_ref().map_or(Ok(()), Critic::share)
    }

    fn publish(&self, dir: &Path, weights: Published) -> Result<(), ModelError> {
        self.model.decoder.ops().host(&self.model)?.save(dir)?;
        match weights {
            Published::Current => Ok(()),
            Published::Perturbed => perturb::directory(dir),
        }
    }

    fn snapshot(&mut self, place: usize) -> Result<Option<Placing>, ModelError> {
        let Self { model, trainer, snapshots, .. } = self;
        snapshots.as_mut().map(|all| all.put(model, trainer.version, place)).transpose()
    }

    fn version(&self) -> u64 {
        self.trainer.version
    }

    fn load(&mut self, dir: &Path) -> Result<(), ModelError> {
        self.snapshots.iter_mut().for_each(PolicySnapshots::forget);
        self.trainer.load(&self.model, dir)?;
        self.critic.as_mut().map_or(Ok(()), |critic| critic.load(dir))
    }

    fn fingerprint(&self) -> Result<String, ModelError> {
        Ok(self.model.decoder.ops().host(&self.model)?.fingerprint())
    }
}

impl<O: Backend> Hosted<O> for OwnedModels<O> {
    fn model(&self) -> &Model<O> {
        &self.model
    }

    fn version(&self) -> u64 {
        self.trainer.version
    }
}

/// Moves the base of a worker group to a device.
pub(super) fn base_on<O: Backend>(
    ops: &O,
    worker: &WorkerSpec,
    loaded: &Model,
) -> Result<Model<O>, ModelError> {
    let trained = worker.policies.iter().any(|policy| policy.trained && policy.adapter.is_none());
    ops.load(loaded.clone(), trained)
}

/// Loads the tokenizer and the base of a worker group, as it is stored and on a device.
fn load_base<O: Backend>(
    ops: &O,
    worker: &WorkerSpec,
) -> Result<(Arc<Tokenizer>, Model, Model<O>), ModelError> {
    worker.source.fetch()?;
    let files = ModelFiles::new(&worker.source);
    let tokenizer = Tokenizer::load(&files)?;
    let tokenizer = Arc::new(tokenizer.with_template_kwargs(&worker.template_kwargs));
    tokenizer.require_template()?;
    let loaded = match worker.dtype {
        Dtype::File => Model::load_blocks(&files)?,
        Dtype::F32 | Dtype::Bf16 | Dtype::F16 => Model::load(&files)?,
    };
    let base = base_on(ops, worker, &loaded)?;
    if tokenizer.len() > base.config.vocab_size {
        let (tokens, rows) = (tokenizer.len(), base.config.vocab_size);
        let message = format!("the tokenizer has {tokens} tokens, the embedding {rows} rows");
        return Err(ModelError::no_match(message));
    }
    Ok((tokenizer, loaded, base))
}

/// Creates the policies of a worker group on a base, which is also given as it was loaded.
pub(super) fn policies<O: Backend>(
    worker: &WorkerSpec,
    options: &RuntimeOptions,
    bases: (&Model<O>, &Model),
    (pools, peers): (&Pools<O>, &Peers),
) -> Result<Vec<OwnedModels<O>>, ModelError> {
    let shared = || (pools.clone(), peers.clone());
    let policies = worker.policies.iter();
    let policies =
        policies.map(|policy| OwnedModels::new((worker, options), policy, bases, shared()));
    policies.collect()
}

/// A handle to a worker group. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) name: Arc<str>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) context: usize,
    /// Counters of each policy.
    pub(crate) work: Arc<[Arc<Mutex<EngineStats>>]>,
    /// Blocks of its key-value cache.
    pub(crate) blocks: Arc<KvBlocks>,
    /// Number of ranks that it is on.
    pub(crate) ranks: usize,
    pub(crate) queue: WorkerQueue<PolicyOperations>,
    /// Memory of copies of its policies that were written.
    pub(crate) spare: SpareMemory,
    /// Snapshots of its policies, if it has places for some.
    pub(crate) snapshots: Option<Arc<dyn Snapshots>>,
    /// Bytes in the memory of a device.
    #[cfg(feature = "cuda")]
    pub(crate) usage: Option<Arc<MemoryUsage>>,
}

impl Worker {
    /// Loads the model and the adapters and critics of its policies, and serves requests on a thread of its own, or on two if
    /// it has snapshots. On the CPU, it shares buffers.
    pub(crate) fn spawn(
        worker: &WorkerSpec,
        options: &RuntimeOptions,
        device: &OpenDevice,
        (pools, barriers, peers): (&Pools<Cpu>, &BarrierLimit, &Peers),
    ) -> Result<(Self, Vec<JoinHandle<()>>), RuntimeError> {
        let options = &worker.options(options);
        match device {
            OpenDevice::Cpu => {
                let cpu = Cpu { precision: worker.dtype.into() };
                let barriers =
                    if peers.size() == 1 { barriers.clone() } else { BarrierLimit::default() };
                Self::on(&cpu, worker, options, (pools, barriers, peers))
            }
            #[cfg(feature = "candle")]
            OpenDevice::Candle(candle) => {
                let shared = (&Pools::default(), BarrierLimit::default(), peers);
                Self::on(candle, worker, options, shared)
            }
            #[cfg(feature = "cuda")]
            OpenDevice::Emulated(device) => Self::on_device(device, worker, options, peers),
            #[cfg(feature = "cuda")]
            OpenDevice::Cuda(device) => Self::on_device(device, worker, options, peers),
        }
    }

    /// Spawns a worker group whose arrays are counted.
    #[cfg(feature = "cuda")]
    fn on_device<M: Runner>(
        device: &Device<M>,
        worker: &WorkerSpec,
        options: &RuntimeOptions,
        peers: &Peers,
    ) -> Result<(Self, Vec<JoinHandle<()>>), RuntimeError> {
        let peers = peers.connect(device, options);
        let peers = peers.map_err(|error| error.in_worker(&worker.name))?;
        let device = &device.fork().with_graphs(options.graphs);
        let shared = (&Pools::default(), BarrierLimit::default(), &peers);
        let (worker, threads) = Self::on(device, worker, options, shared)?;
        Ok((Self { usage: Some(Arc::clone(device.kernels().usage())), ..worker }, threads))
    }

    fn on<O: Backend>(
        ops: &O,
        worker: &WorkerSpec,
        options: &RuntimeOptions,
        (pools, barriers, peers): (&Pools<O>, BarrierLimit, &Peers),
    ) -> Result<(Self, Vec<JoinHandle<()>>), RuntimeError> {
        let name: Arc<str> = worker.name.as_str().into();
        let (tokenizer, loaded, base) =
            load_base(ops, worker).map_err(|error| error.in_worker(&worker.name))?;
        let context = base.config.max_position_embeddings;
        let mut owned = policies(worker, options, (&base, &loaded), (pools, peers))
            .map_err(|error| error.in_worker(&worker.name))?;
        let snapshots = match worker.snapshots {
            0 => None,
            _ => Some(SnapshotThread::start(worker, &base, &tokenizer, options, peers.threads()?)?),
        };
        let (snapshots, mut all) =
            snapshots.map_or((None, Vec::new()), |(it, thread)| (Some(it), vec![thread]));
        if let Some(thread) = &snapshots {
            for (at, (owned, policy)) in owned.iter_mut().zip(&worker.policies).enumerate() {
                owned.snapshots = Some(PolicySnapshots::new(thread, at, policy.trained));
            }
        }
        let spoken = Arc::clone(&tokenizer);
        let engine = Engine::new(&worker.name, spoken, ops, &base.config, options, owned.len());
        let (work, blocks) = (engine.work().into(), engine.blocks());
        let requests = options.max_requests.get();
        let member = OwnedModels::<O>::member;
        let threads = (peers.threads()?, barriers);
        let (queue, thread) =
            WorkerQueue::start(&name, owned, (engine, threads), requests, member)?;
        // The thread of snapshots ends after this one, which has a handle to it.
        all.insert(0, thread);
        let worker = Self {
            name,
            tokenizer,
            context,
            work,
            blocks,
            ranks: peers.size(),
            queue,
            spare: SpareMemory::default(),
            snapshots: snapshots.map(|thread| Arc::new(thread) as Arc<dyn Snapshots>),
            #[cfg(feature = "cuda")]
            usage: None,
        };
        Ok((worker, all))
    }
}

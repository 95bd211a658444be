//! A worker group: one thread that owns one base model and the policies on it.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use maverl_kernels::sample::derive_seed;

use crate::model::{Adapter, Model, ModelError, ModelErrorKind, ModelFiles, Pool, Tokenizer};
use crate::runtime::critic::{Critic, Shared};
use crate::runtime::engine::Engine;
use crate::runtime::queue::{Hosted, Queue};
use crate::runtime::trainer::Trainer;
use crate::runtime::{
    AdapterSpec, Batch, EngineStats, PolicySpec, RuntimeError, RuntimeOptions, UpdateStats,
    ValueBatch, ValueStats, WorkerSpec,
};

/// A policy in its worker. All models of a worker share the storage of its base.
pub(crate) struct Owned {
    pub(crate) model: Model,
    pub(crate) trainer: Trainer,
    /// Critic of the policy, if it has one.
    pub(crate) critic: Option<Critic>,
}

/// Constant that separates the seed of a critic's adapter from its policy's.
const CRITIC: u64 = 0x0063_7269_7469_6300;

impl Owned {
    /// Creates the policy: the base itself, or an adapter on it, loaded from its start or initialized from the seed and
    /// its name.
    fn new(
        options: &RuntimeOptions,
        policy: &PolicySpec,
        base: &Model,
        pool: Arc<Mutex<Pool>>,
    ) -> Result<Self, ModelError> {
        let seed =
            policy.name.bytes().fold(options.seed, |seed, byte| derive_seed(seed, u64::from(byte)));
        let model = match &policy.adapter {
            None => base.clone(),
            Some(AdapterSpec::New(lora)) => {
                base.with_adapter(Adapter::new(&base.config, lora.on(&base.config), seed)?)
            }
            Some(AdapterSpec::Load { dir, dropout }) => {
                base.with_adapter(Adapter::load(dir, &base.config)?.with_dropout(*dropout))
            }
        };
        let micro_batch_tokens = options.micro_batch_tokens.get();
        let seed_of_critic = derive_seed(seed, CRITIC);
        let critic = policy.critic.as_ref();
        let critic = critic.map(|critic| {
            Critic::new(
                critic,
                policy,
                base,
                (seed_of_critic, micro_batch_tokens),
                Arc::clone(&pool),
            )
        });
        let critic = critic.transpose()?;
        let trainer = Trainer::new(policy, &model, seed, micro_batch_tokens, pool)?;
        Ok(Self { model, trainer, critic })
    }

    /// Updates the weights; together with a critic on the same trunk, if there is a batch for it.
    pub(crate) fn update(
        &mut self,
        batch: &Batch,
        values: Option<&ValueBatch>,
    ) -> Result<(UpdateStats, Option<ValueStats>), RuntimeError> {
        let mut shared = match (&mut self.critic, values) {
            (Some(critic), Some(values)) => Some(Shared::new(critic, values)?),
            _ => None,
        };
        let stats = self.trainer.update(&self.model, batch, shared.as_mut())?;
        Ok((stats, shared.map(|shared| shared.stats())))
    }

    /// Writes policy and critic.
    pub(crate) fn save(&self, dir: &Path) -> Result<(), ModelError> {
        self.model.save(dir)?;
        self.trainer.save(dir)?;
        self.critic.as_ref().map_or(Ok(()), |critic| critic.save(dir))
    }

    /// Restores policy and critic.
    pub(crate) fn load(&mut self, dir: &Path) -> Result<(), ModelError> {
        self.trainer.load(&self.model, dir)?;
        self.critic.as_mut().map_or(Ok(()), |critic| critic.load(dir))
    }
}

impl Hosted for Owned {
    fn model(&self) -> &Model {
        &self.model
    }

    fn version(&self) -> u64 {
        self.trainer.version
    }
}

/// A handle to a worker group. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) name: Arc<str>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) context: usize,
    /// Counters of each policy.
    pub(crate) work: Arc<[Arc<Mutex<EngineStats>>]>,
    pub(crate) queue: Queue<Owned>,
}

impl Worker {
    /// Loads the model and the adapters and critics of its policies, and serves requests on a thread of its own.
    pub(crate) fn spawn(
        worker: &WorkerSpec,
        options: &RuntimeOptions,
    ) -> Result<(Self, JoinHandle<()>), RuntimeError> {
        let name: Arc<str> = worker.name.as_str().into();
        let failed =
            |source: ModelError| RuntimeError::Model { worker: worker.name.clone(), source };
        worker.source.fetch().map_err(failed)?;
        let files = ModelFiles::new(&worker.source);
        let tokenizer = Tokenizer::load(&files).map_err(failed)?;
        let tokenizer = Arc::new(tokenizer.with_template_kwargs(&worker.template_kwargs));
        tokenizer.require_template().map_err(failed)?;
        let base = Model::load(&files).map_err(failed)?;
        let base = base.with_precision(worker.precision);
        if tokenizer.len() > base.config.vocab_size {
            let (tokens, rows) = (tokenizer.len(), base.config.vocab_size);
            return Err(failed(ModelError::new(
                ModelErrorKind::Mismatch,
                format!("the tokenizer has {tokens} tokens, the embedding {rows} rows"),
            )));
        }
        let context = base.config.max_position_embeddings;
        let pool = Arc::default();
        let owned: Vec<Owned> = worker
            .policies
            .iter()
            .map(|policy| Owned::new(options, policy, &base, Arc::clone(&pool)))
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        let spoken = Arc::clone(&tokenizer);
        let engine = Engine::new(&worker.name, spoken, &base.config, options, owned.len());
        let work = engine.work().into();
        let requests = options.max_requests.get();
        let (queue, thread) = Queue::start(&name, owned, engine, requests)?;
        Ok((Self { name, tokenizer, context, work, queue }, thread))
    }
}

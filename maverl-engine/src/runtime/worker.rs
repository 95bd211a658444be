//! A worker group: one thread that owns one base model and the policies on it, and serves a queue.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use maverl_kernels::sample::derive_seed;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::model::{Adapter, Model, ModelError, ModelErrorKind, ModelFiles, Pool, Tokenizer};
use crate::runtime::critic::{Critic, Shared};
use crate::runtime::engine::{Engine, Reply};
use crate::runtime::trainer::Trainer;
use crate::runtime::{
    AdapterSpec, Batch, Completion, EngineStats, PolicySpec, Request, RuntimeError, RuntimeOptions,
    UpdateStats, ValueBatch, ValueStats, WorkerSpec,
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
        self.trainer.save(&self.model, dir)?;
        self.critic.as_ref().map_or(Ok(()), |critic| critic.save(dir))
    }

    /// Restores policy and critic.
    pub(crate) fn load(&mut self, dir: &Path) -> Result<(), ModelError> {
        self.trainer.load(&self.model, dir)?;
        self.critic.as_mut().map_or(Ok(()), |critic| critic.load(dir))
    }
}

type Barrier = Box<dyn FnOnce(&mut [Owned]) + Send>;

enum Job {
    /// Generation by a policy of this worker.
    Generate(usize, Request, Reply<Completion>, OwnedSemaphorePermit),
    /// Job that runs after everything sent before it and before anything sent after (RT-1); it may change this policy.
    Barrier(usize, Barrier),
}

/// A handle to a worker group. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) name: Arc<str>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) context: usize,
    /// Counters of each policy.
    pub(crate) work: Arc<[Arc<Mutex<EngineStats>>]>,
    jobs: mpsc::Sender<Job>,
    admission: Arc<Semaphore>,
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
        // Admission bounds the generations; barriers come from one trainer, a few at a time.
        let (jobs, queue) = mpsc::channel(requests + 8);
        let thread = std::thread::Builder::new()
            .name(format!("worker {name}"))
            .spawn(move || serve(owned, engine, queue))
            .map_err(|e| failed(ModelError::io(format!("no thread: {e}"), e)))?;
        let admission = Arc::new(Semaphore::new(requests));
        Ok((Self { name, tokenizer, context, work, jobs, admission }, thread))
    }

    /// Completes a prompt with one of the worker's policies.
    pub(crate) async fn generate(
        &self,
        policy: usize,
        request: Request,
    ) -> Result<Completion, RuntimeError> {
        let permit = Arc::clone(&self.admission).acquire_owned().await.map_err(|_| self.gone())?;
        let (reply, answer) = oneshot::channel();
        let job = Job::Generate(policy, request, reply, permit);
        self.jobs.send(job).await.map_err(|_| self.gone())?;
        answer.await.map_err(|_| self.gone())?
    }

    /// Runs `job` on one of the worker's policies, at a barrier for all of them (RT-1).
    pub(crate) async fn at_barrier<T: Send + 'static>(
        &self,
        policy: usize,
        job: impl FnOnce(&mut Owned) -> Result<T, RuntimeError> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let (reply, answer) = oneshot::channel();
        // The send fails only if the caller dropped the request.
        let job: Barrier = Box::new(move |owned| drop(reply.send(job(&mut owned[policy]))));
        self.jobs.send(Job::Barrier(policy, job)).await.map_err(|_| self.gone())?;
        answer.await.map_err(|_| self.gone())?
    }

    fn gone(&self) -> RuntimeError {
        let reason = "its thread ended; what it printed above says why".to_owned();
        RuntimeError::Gone { worker: self.name.to_string(), reason }
    }
}

/// Runs the loop of the thread: requests join between forward passes. A barrier waits until none is running, and holds
/// back later jobs. The loop ends when every handle is dropped.
fn serve(mut owned: Vec<Owned>, mut engine: Engine, mut queue: mpsc::Receiver<Job>) {
    let mut barrier: Option<(usize, Barrier)> = None;
    loop {
        while barrier.is_none() {
            let job = match queue.try_recv() {
                Ok(job) => job,
                Err(_) if !engine.is_idle() => break,
                Err(_) => match queue.blocking_recv() {
                    Some(job) => job,
                    None => return,
                },
            };
            match job {
                Job::Generate(policy, request, reply, permit) => {
                    let Owned { model, trainer, .. } = &owned[policy];
                    engine.admit(policy, model, trainer.version, request, reply, permit);
                }
                Job::Barrier(policy, job) => barrier = Some((policy, job)),
            }
        }
        if !engine.is_idle() {
            // Runs on a thread of the pool, which then need not be woken for each kernel.
            rayon::scope(|_| engine.step(owned.iter().map(|owned| &owned.model)));
        } else if let Some((policy, job)) = barrier.take() {
            engine.forget(policy);
            owned.iter().for_each(|owned| owned.model.decoder.unpack());
            rayon::scope(|_| job(&mut owned));
        }
    }
}

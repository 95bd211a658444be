//! The queue of a thread that owns models: generations, which are batched, and barriers.

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::model::{Model, ModelError};
use crate::runtime::engine::{Engine, Reply};
use crate::runtime::{Completion, Request, RuntimeError};

/// A model in its thread, with whatever else belongs to it.
pub(crate) trait Hosted: Send + Sync + 'static {
    /// Returns the model.
    fn model(&self) -> &Model;
    /// Returns the number of updates of the model.
    fn version(&self) -> u64;
}

type Barrier<O> = Box<dyn FnOnce(&mut [O]) + Send>;

enum Job<O> {
    /// Generation by one of the models.
    Generate(usize, Request, Reply<Completion>, OwnedSemaphorePermit),
    /// Job that runs after everything sent before it and before anything sent after (RT-1); it may change this model.
    Barrier(usize, Barrier<O>),
}

/// A handle to the thread. Cheap to clone.
pub(crate) struct Queue<O> {
    name: Arc<str>,
    jobs: mpsc::Sender<Job<O>>,
    admission: Arc<Semaphore>,
}

impl<O> Clone for Queue<O> {
    fn clone(&self) -> Self {
        let Self { name, jobs, admission } = self;
        Self { name: Arc::clone(name), jobs: jobs.clone(), admission: Arc::clone(admission) }
    }
}

impl<O: Hosted> Queue<O> {
    /// Starts a thread that owns these models and runs up to `requests` generations at once.
    pub(crate) fn start(
        name: &Arc<str>,
        owned: Vec<O>,
        engine: Engine,
        requests: usize,
    ) -> Result<(Self, JoinHandle<()>), RuntimeError> {
        // Admission bounds the generations; barriers come from one caller, a few at a time.
        let (jobs, queue) = mpsc::channel(requests + 8);
        let thread = std::thread::Builder::new()
            .name(format!("worker {name}"))
            .spawn(move || serve(owned, engine, queue))
            .map_err(|e| RuntimeError::Model {
                worker: name.to_string(),
                source: ModelError::io(format!("no thread: {e}"), e),
            })?;
        let admission = Arc::new(Semaphore::new(requests));
        Ok((Self { name: Arc::clone(name), jobs, admission }, thread))
    }

    /// Completes a prompt with one of the models.
    pub(crate) async fn generate(
        &self,
        model: usize,
        request: Request,
    ) -> Result<Completion, RuntimeError> {
        let permit = Arc::clone(&self.admission).acquire_owned().await.map_err(|_| self.gone())?;
        let (reply, answer) = oneshot::channel();
        let job = Job::Generate(model, request, reply, permit);
        self.jobs.send(job).await.map_err(|_| self.gone())?;
        answer.await.map_err(|_| self.gone())?
    }

    /// Runs `job` on one of the models, at a barrier for all of them (RT-1).
    pub(crate) async fn at_barrier<T: Send + 'static>(
        &self,
        model: usize,
        job: impl FnOnce(&mut O) -> Result<T, RuntimeError> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let (reply, answer) = oneshot::channel();
        // The send fails only if the caller dropped the request.
        let job: Barrier<O> = Box::new(move |owned| drop(reply.send(job(&mut owned[model]))));
        self.jobs.send(Job::Barrier(model, job)).await.map_err(|_| self.gone())?;
        answer.await.map_err(|_| self.gone())?
    }

    fn gone(&self) -> RuntimeError {
        let reason = "its thread ended; what it printed above says why".to_owned();
        RuntimeError::Gone { worker: self.name.to_string(), reason }
    }
}

/// Runs the loop of the thread: requests join between forward passes. A barrier waits until none is running, and holds
/// back later jobs. The loop ends when every handle is dropped.
fn serve<O: Hosted>(mut owned: Vec<O>, mut engine: Engine, mut queue: mpsc::Receiver<Job<O>>) {
    let mut barrier: Option<(usize, Barrier<O>)> = None;
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
                Job::Generate(at, request, reply, permit) => {
                    let (model, version) = (owned[at].model(), owned[at].version());
                    engine.admit(at, model, version, request, reply, permit);
                }
                Job::Barrier(at, job) => barrier = Some((at, job)),
            }
        }
        if !engine.is_idle() {
            // Runs on a thread of the pool, which then need not be woken for each kernel.
            rayon::scope(|_| engine.step(owned.iter().map(Hosted::model)));
        } else if let Some((at, job)) = barrier.take() {
            engine.forget(at);
            owned.iter().for_each(|owned| owned.model().decoder.unpack());
            rayon::scope(|_| job(&mut owned));
        }
    }
}

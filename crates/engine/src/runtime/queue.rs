//! The queue of a thread that owns models: generations, which are batched, and barriers.
//!
//! Every operation but a generation is a barrier: an update, a save, a load, log-probs, values, hashes of weights. A
//! semaphore bounds the generations. A barrier is about one policy, and waits for the requests of all policies of the
//! thread. Before it, the prefix tree of its policy is dropped, because the operation may change the weights. If no
//! other policy has cached blocks then, the memory of the cache is freed.

use std::sync::Arc;
use std::thread::JoinHandle;

use rayon::ThreadPool;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::files::ModelError;
use crate::net::Model;
use crate::net::ops::Backend;
use crate::runtime::engine::{Engine, Reply};
use crate::runtime::pools::BarrierLimit;
use crate::runtime::{Completion, Request, RuntimeError};

/// A model in its thread, with whatever else belongs to it.
pub(crate) trait Hosted<O: Backend>: Send + Sync + 'static {
    /// Returns the model.
    fn model(&self) -> &Model<O>;
    /// Returns the number of updates of the model.
    fn version(&self) -> u64;
}

type Barrier<T> = Box<dyn FnOnce(&mut T) + Send>;

enum QueueJob<T: ?Sized> {
    /// Generation by one of the models.
    Generate(usize, Request, Reply<Completion>, OwnedSemaphorePermit),
    /// Job that runs after everything sent before it and before anything sent after (RT-1); it may change this model.
    Barrier(usize, Barrier<T>),
}

/// A handle to the thread, whose barriers see models as `T`. Cheap to clone.
pub(crate) struct WorkerQueue<T: ?Sized> {
    name: Arc<str>,
    jobs: mpsc::Sender<QueueJob<T>>,
    admission: Arc<Semaphore>,
}

impl<T: ?Sized> Clone for WorkerQueue<T> {
    fn clone(&self) -> Self {
        let Self { name, jobs, admission } = self;
        Self { name: Arc::clone(name), jobs: jobs.clone(), admission: Arc::clone(admission) }
    }
}

impl<T: ?Sized + 'static> WorkerQueue<T> {
    /// Starts a thread that owns these models and runs up to `requests` generations at once, on the threads of a pool or of
    /// the global one, and barriers within its limit. `of` returns a model as barriers see it.
    pub(crate) fn start<O: Backend, H: Hosted<O>>(
        name: &Arc<str>,
        owned: Vec<H>,
        (engine, threads): (Engine<O>, (Option<ThreadPool>, BarrierLimit)),
        requests: usize,
        of: fn(&mut H) -> &mut T,
    ) -> Result<(Self, JoinHandle<()>), RuntimeError> {
        // Admission bounds the generations; barriers come from one caller, a few at a time.
        let (jobs, queue) = mpsc::channel(requests + 8);
        let thread = std::thread::Builder::new()
            .name(format!("worker {name}"))
            .spawn(move || serve(owned, (engine, threads), queue, of))
            .map_err(|e| ModelError::io(format!("no thread: {e}"), e).in_worker(&**name))?;
        let admission = Arc::new(Semaphore::new(requests));
        Ok((Self { name: Arc::clone(name), jobs, admission }, thread))
    }

    /// Completes a prompt with one of the models.
    pub(crate) async fn generate(
        &self,
        model: usize,
        request: Request,
    ) -> Result<Completion, RuntimeError> {
        let permit =
            Arc::clone(&self.admission).acquire_owned().await.map_err(|_| self.worker_gone())?;
        let (reply, answer) = oneshot::channel();
        let job = QueueJob::Generate(model, request, reply, permit);
        self.jobs.send(job).await.map_err(|_| self.worker_gone())?;
        answer.await.map_err(|_| self.worker_gone())?
    }

    /// Runs `job` on one of the models, at a barrier for all of them (RT-1).
    pub(crate) async fn at_barrier<R: Send + 'static>(
        &self,
        model: usize,
        job: impl FnOnce(&mut T) -> Result<R, RuntimeError> + Send + 'static,
    ) -> Result<R, RuntimeError> {
        let (reply, answer) = oneshot::channel();
        // The send fails only if the caller dropped the request.
        let job: Barrier<T> = Box::new(move |owned| drop(reply.send(job(owned))));
        self.jobs.send(QueueJob::Barrier(model, job)).await.map_err(|_| self.worker_gone())?;
        answer.await.map_err(|_| self.worker_gone())?
    }

    fn worker_gone(&self) -> RuntimeError {
        let reason = "its thread ended; what it printed above says why".to_owned();
        RuntimeError::Gone { worker: self.name.to_string(), reason }
    }
}

/// Runs the loop of the thread: requests join between forward passes. A barrier waits until none is running, and holds
/// back later jobs. The loop ends when every handle is dropped.
fn serve<T: ?Sized, O: Backend, H: Hosted<O>>(
    mut owned: Vec<H>,
    (mut engine, (pool, barriers)): (Engine<O>, (Option<ThreadPool>, BarrierLimit)),
    mut queue: mpsc::Receiver<QueueJob<T>>,
    of: fn(&mut H) -> &mut T,
) {
    let mut barrier: Option<(usize, Barrier<T>)> = None;
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
                QueueJob::Generate(at, request, reply, permit) => {
                    let (model, version) = (owned[at].model(), owned[at].version());
                    engine.admit(at, &model.config, version, request, reply, permit);
                }
                QueueJob::Barrier(at, job) => barrier = Some((at, job)),
            }
        }
        if !engine.is_idle() {
            on(pool.as_ref(), || engine.step(owned.iter().map(Hosted::model)));
        } else if let Some((at, job)) = barrier.take() {
            engine.forget(at);
            owned.iter().for_each(|owned| owned.model().decoder.unpack());
            let (owned, _permit) = (&mut owned[at], barriers.acquire());
            on(pool.as_ref(), || job(of(owned)));
        }
    }
}

/// Runs work on a thread of a pool, or of the global one, so that no thread need be woken for each kernel.
fn on(pool: Option<&ThreadPool>, work: impl FnOnce() + Send) {
    match pool {
        Some(pool) => pool.install(work),
        None => rayon::scope(|_| work()),
    }
}

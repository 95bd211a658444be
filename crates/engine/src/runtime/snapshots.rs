//! Snapshots of the weights of policies, which generate while the policies are updated.
//!
//! A worker group with snapshots has a second thread, with a queue, barriers and a cache of keys and values of its own.
//! A request to a snapshot therefore waits for no update. By K-1, a snapshot gives the completions of its policy at the
//! time of the copy, to the bit.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rayon::ThreadPool;

use crate::files::ModelError;
use crate::net::Model;
use crate::net::ops::Backend;
use crate::runtime::engine::Engine;
use crate::runtime::generator::{Generating, Generator};
use crate::runtime::pools::BarrierLimit;
use crate::runtime::queue::{Hosted, WorkerQueue};
use crate::runtime::{EngineStats, Request, RuntimeError, RuntimeOptions, WorkerSpec};
use crate::text::Tokenizer;

/// Snapshot that is being put into its place.
pub(crate) type Placing = Pin<Box<dyn Future<Output = Result<(), RuntimeError>> + Send>>;

/// Snapshots of the policies of a worker group, on any device.
pub(crate) trait Snapshots: Send + Sync {
    /// Completes a prompt with a snapshot of a policy.
    fn generate(&self, policy: usize, place: usize, request: Request) -> Generating<'_>;

    /// Returns the cost of the completions of a policy's snapshots so far.
    fn work(&self, policy: usize) -> EngineStats;
}

/// A model that is not updated, with the number of updates before.
struct Snapshot<O: Backend> {
    model: Model<O>,
    version: u64,
}

impl<O: Backend> Hosted<O> for Snapshot<O> {
    fn model(&self) -> &Model<O> {
        &self.model
    }

    fn version(&self) -> u64 {
        self.version
    }
}

/// A handle to the thread that generates with snapshots.
pub(super) struct SnapshotThread<O: Backend> {
    queue: WorkerQueue<Snapshot<O>>,
    /// Base for generation alone, which adapters of snapshots are put on, and which is the snapshot of a frozen policy; none where
    /// every policy is trained as a whole.
    base: Option<Model<O>>,
    /// Number of places of each policy.
    places: usize,
    /// Counters of each place.
    work: Arc<[Arc<Mutex<EngineStats>>]>,
}

impl<O: Backend> Clone for SnapshotThread<O> {
    fn clone(&self) -> Self {
        let Self { queue, base, places, work } = self;
        let (queue, base, work) = (queue.clone(), base.clone(), Arc::clone(work));
        Self { queue, base, places: *places, work }
    }
}

impl<O: Backend> SnapshotThread<O> {
    /// Starts the thread of a worker group on its base, with `worker.snapshots` places for each policy. All hold the base at first,
    /// which is freed when all have snapshots, unless adapters or frozen policies need it.
    pub(super) fn start(
        worker: &WorkerSpec,
        base: &Model<O>,
        tokenizer: &Arc<Tokenizer>,
        options: &RuntimeOptions,
        pool: Option<ThreadPool>,
    ) -> Result<(Self, JoinHandle<()>), RuntimeError> {
        let base = base_for_generation(worker, base);
        let base = base.map_err(|error| error.in_worker(&worker.name))?;
        let all = worker.policies.len() * worker.snapshots;
        let (ops, spoken) = (base.decoder.ops(), Arc::clone(tokenizer));
        let engine = Engine::new(&worker.name, spoken, ops, &base.config, options, all);
        let work = engine.work().into();
        let owned = (0..all).map(|_| Snapshot { model: base.clone(), version: 0 }).collect();
        let base = Some(base).filter(|_| needs_base(worker));
        let (queue, thread) = WorkerQueue::start(
            &worker.name.as_str().into(),
            owned,
            (engine, (pool, BarrierLimit::default())),
            options.max_requests.get(),
            |snapshot| snapshot,
        )?;
        Ok((Self { queue, base, places: worker.snapshots, work }, thread))
    }
}

impl<O: Backend> Snapshots for SnapshotThread<O> {
    fn generate(&self, policy: usize, place: usize, request: Request) -> Generating<'_> {
        Box::pin(self.queue.generate(policy * self.places + place, request))
    }

    fn work(&self, policy: usize) -> EngineStats {
        let its = &self.work[policy * self.places..][..self.places];
        its.iter().fold(EngineStats::default(), |sum, work| {
            sum + *work.lock().unwrap_or_else(PoisonError::into_inner)
        })
    }
}

/// The places of one policy in the thread of snapshots, as the thread of the policy sees them.
pub(super) struct PolicySnapshots<O: Backend> {
    pub(super) thread: SnapshotThread<O>,
    /// Index of the policy in its worker group.
    pub(super) policy: usize,
    /// True if the policy is updated.
    pub(super) trained: bool,
    /// Newest snapshot, with its number of updates.
    newest: Option<(u64, Model<O>)>,
}

impl<O: Backend> PolicySnapshots<O> {
    pub(super) fn new(thread: &SnapshotThread<O>, policy: usize, trained: bool) -> Self {
        Self { thread: thread.clone(), policy, trained, newest: None }
    }

    /// Forgets the newest snapshot, because other weights are loaded.
    pub(super) fn forget(&mut self) {
        self.newest = None;
    }

    /// Copies the weights of the policy, unless they are those of the newest snapshot, and puts the copy into a place. The
    /// returned future ends when the place has it.
    pub(super) fn put(
        &mut self,
        model: &Model<O>,
        version: u64,
        place: usize,
    ) -> Result<Placing, ModelError> {
        let copy = match &self.newest {
            Some((newest, copy)) if *newest == version => copy.clone(),
            _ => self.copy(model)?,
        };
        self.newest = Some((version, copy.clone()));
        let snapshot = Snapshot { model: copy, version };
        let (queue, at) = (self.thread.queue.clone(), self.policy * self.thread.places + place);
        Ok(Box::pin(async move { queue.at_barrier(at, move |old| replace(old, snapshot)).await }))
    }

    fn copy(&self, model: &Model<O>) -> Result<Model<O>, ModelError> {
        if let Some(base) = &self.thread.base {
            match model.copy_adapter_to(base)? {
                Some(copy) => return Ok(copy),
                None if !self.trained => return Ok(base.clone()),
                None => {}
            }
        }
        model.decoder.ops().for_generation(model.copy(false)?)
    }
}

/// Replaces the snapshot in a place.
fn replace<O: Backend>(old: &mut Snapshot<O>, new: Snapshot<O>) -> Result<(), RuntimeError> {
    *old = new;
    Ok(())
}

/// Generator of the snapshot in a place.
pub(super) struct SnapshotGenerator {
    pub(super) snapshots: Arc<dyn Snapshots>,
    /// Index of the policy in its worker group.
    pub(super) policy: usize,
    pub(super) place: usize,
}

impl Generator for SnapshotGenerator {
    fn generate(&self, request: Request) -> Generating<'_> {
        self.snapshots.generate(self.policy, self.place, request)
    }

    fn sampled(&self) -> u64 {
        self.snapshots.work(self.policy).decoded
    }
}

/// Returns the base of a worker group for generation alone: a copy if its weights are trained.
fn base_for_generation<O: Backend>(
    worker: &WorkerSpec,
    base: &Model<O>,
) -> Result<Model<O>, ModelError> {
    let trained = worker.policies.iter().any(|policy| policy.trained && policy.adapter.is_none());
    let own = if trained { base.copy(false)? } else { base.clone() };
    base.decoder.ops().for_generation(own)
}

/// Returns true if snapshots of a worker group are made of its base: those of adapters and of frozen policies are.
fn needs_base(worker: &WorkerSpec) -> bool {
    worker.policies.iter().any(|policy| !policy.trained || policy.adapter.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{ModelSource, PolicySpec};

    #[test]
    fn a_group_that_is_trained_as_a_whole_keeps_no_base_beside_its_snapshots() {
        let source = || ModelSource::Builtin("tiny".to_owned());
        let of = |policy| WorkerSpec { policies: vec![policy], ..WorkerSpec::new("p", source()) };
        assert!(!needs_base(&of(PolicySpec::new("p"))));
        assert!(needs_base(&of(PolicySpec { trained: false, ..PolicySpec::new("p") })));
    }
}

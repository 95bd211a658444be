//! Start and end of worker groups.

use std::collections::BTreeSet;
use std::error::Error;
use std::thread::JoinHandle;

use maverl_dist::{Ranks, Shard};

use crate::runtime::device::Devices;
use crate::runtime::memory;
use crate::runtime::peers::Peers;
use crate::runtime::policy::Policy;
use crate::runtime::pools::{BarrierLimit, Pools};
use crate::runtime::worker::Worker;
use crate::runtime::{DeviceChoice, Dtype, PolicySpec, RuntimeError, RuntimeOptions, WorkerSpec};

/// Running worker groups.
pub struct Runtime {
    /// Requested number of threads; 0 is one per core.
    asked_threads: usize,
    pub(super) devices: Devices,
    policies: Vec<Policy>,
    threads: Vec<JoinHandle<()>>,
}

impl Runtime {
    /// Loads every model and starts a thread for each worker group.
    ///
    /// # Errors
    ///
    /// If two policies have one name, ranks cannot divide the weights as the options ask, a device cannot be used or a model not be
    /// loaded, or `MAVERL_SIMD` is invalid.
    pub fn start(workers: &[WorkerSpec], options: &RuntimeOptions) -> Result<Self, RuntimeError> {
        Self::start_on(workers, options, None)
    }

    /// Loads every model and starts a thread for each worker group, which updates its policies together with those of the
    /// other ranks. Every rank starts equal worker groups and calls their operations other than
    /// [`Policy::generate`] in the same order.
    ///
    /// # Errors
    ///
    /// See [`Runtime::start`].
    #[doc(hidden)]
    pub fn start_on(
        workers: &[WorkerSpec],
        options: &RuntimeOptions,
        ranks: Option<&Ranks>,
    ) -> Result<Self, RuntimeError> {
        distinct(workers)?;
        let shard = options.shard;
        let others = ranks.is_some_and(|ranks| ranks.size() > 1);
        if let Some(reason) = undivided_part(workers, options, others) {
            return Err(RuntimeError::Shard { shard: shard.name(), reason });
        }
        maverl_kernels::simd::select_path()?;
        memory::keep_freed();
        start_threads(options.threads)?;
        let devices = Devices::open(options.device, workers)?;
        let (mut policies, mut threads, pools) = (Vec::new(), Vec::new(), Pools::default());
        let barriers = BarrierLimit::new(rayon::current_num_threads());
        for (number, (spec, device)) in workers.iter().zip(devices.of_groups()).enumerate() {
            // Channel 0 is not of the runtime.
            let channel = ranks.map(|ranks| ranks.channel(number as u32 + 1));
            let peers = Peers::new(channel, shard);
            let (worker, its) = Worker::spawn(spec, options, device, (&pools, &barriers, &peers))?;
            threads.extend(its);
            policies.extend(spec.policies.iter().enumerate().map(|(slot, policy)| Policy {
                name: policy.name.as_str().into(),
                slot,
                worker: worker.clone(),
                generator: None,
            }));
        }
        policies.sort_by(|a: &Policy, b| a.name.cmp(&b.name));
        Ok(Self { asked_threads: options.threads, devices, policies, threads })
    }

    /// Returns differences from the options that change no result.
    pub fn notes(&self) -> Vec<String> {
        let (asked, found) = (self.asked_threads, rayon::current_num_threads());
        let other = asked != 0 && asked != found;
        let note = format!(
            "`runtime.threads` is {asked}, but the kernels of this process already have {found}: they are started once"
        );
        other.then_some(note).into_iter().collect()
    }

    /// Returns the policies of all worker groups, sorted by name.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Returns the policy of a name.
    pub fn policy(&self, name: &str) -> Option<&Policy> {
        self.policies.iter().find(|policy| policy.name() == name)
    }

    /// Waits until every thread has finished its jobs and ended. A handle keeps its thread alive, so drop all handles
    /// first.
    pub fn shutdown(self) {
        drop(self.policies);
        for thread in self.threads {
            // A panic was already reported, and its callers got `Gone` (RT-3).
            drop(thread.join());
        }
    }
}

/// Returns the first part of worker groups that ranks do not divide as the options ask; `None` if there is none. `others` is true if
/// there are other ranks.
fn undivided_part(
    workers: &[WorkerSpec],
    options: &RuntimeOptions,
    others: bool,
) -> Option<String> {
    match options.shard {
        Shard::Hybrid => return Some("weights are not divided within machines".to_owned()),
        Shard::Full if others => {}
        Shard::None | Shard::Optimizer | Shard::Full => return None,
    }
    for worker in workers {
        if worker.device.unwrap_or(options.device) != DeviceChoice::Cpu {
            return Some(format!("worker group `{}` is not on the CPU", worker.name));
        }
        if worker.dtype == Dtype::F16 {
            return Some(format!("worker group `{}` is in f16", worker.name));
        }
        for PolicySpec { name, adapter, critic, .. } in &worker.policies {
            if adapter.is_some() {
                return Some(format!("policy `{name}` is an adapter"));
            }
            if critic.is_some() {
                return Some(format!("policy `{name}` has a critic"));
            }
        }
    }
    None
}

/// Returns an error if two policies have one name.
fn distinct(workers: &[WorkerSpec]) -> Result<(), RuntimeError> {
    let mut names = BTreeSet::new();
    let all = workers.iter().flat_map(|worker| &worker.policies);
    match all.map(|policy| policy.name.as_str()).find(|name| !names.insert(*name)) {
        Some(name) => Err(RuntimeError::Duplicate { policy: name.to_owned() }),
        None => Ok(()),
    }
}

/// Starts the threads of the kernels: rayon's global pool. An existing pool, as with a second
/// runtime in one process, is kept: results do not depend on its size.
pub(super) fn start_threads(threads: usize) -> Result<(), RuntimeError> {
    match rayon::ThreadPoolBuilder::new().num_threads(threads).build_global() {
        Err(error) if error.source().is_some() => {
            Err(RuntimeError::Threads { threads, reason: error.to_string() })
        }
        _ => Ok(()),
    }
}

//! This process among the ranks that train together.
//!
//! Before the first step, ranks compare version, configuration, data and weights. A closed connection, no message for
//! three quarters of `dist.timeout_s`, or an error of a rank ends all operations of all ranks with its name. The run
//! directory is then as after a kill.

pub(super) mod follow;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use futures::future::try_join_all;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::config::DistConfig;
use crate::config::tables::may_change;
use crate::dist::{Channel, DistOptions, Launch, RankError, Ranks};
use crate::run_dir::Origin;
use crate::runtime::{DeviceChoice, Policy, RuntimeOptions, WorkerSpec};
use crate::train::error::TrainError;
use crate::train::options::Options;
use crate::train::progress::interrupt::Interrupt;
use crate::trajectory::Episode;

/// Channel of everything but the updates of worker groups, and the batches that are played ahead.
const CHANNEL: u32 = 0;
/// Channel of the batches in the first place; those of worker groups are below.
const BATCHES: u32 = 1 << 16;
/// Time in which a signal to all ranks reaches each: one may notice the end of another first.
const SIGNALED: Duration = Duration::from_millis(300);
/// Number of differences between two ranks that a message names.
const NAMED: usize = 3;

/// The ranks that train together; this process alone by default. Clones share the connection.
#[derive(Debug, Clone, Default)]
pub(super) struct RankPeers(Option<Connected>);

#[derive(Debug, Clone)]
struct Connected {
    ranks: Ranks,
    launch: Launch,
    channel: u32,
}

/// An episode on its way to the other ranks.
#[derive(Serialize, Deserialize)]
struct SentEpisodes {
    /// Place among the episodes that were asked for.
    place: usize,
    episode: Episode,
    /// Output of the program that played it, which is not part of its record.
    log: String,
}

impl RankPeers {
    /// Connects this process with the others of its launch, if it was launched with others. Options of the run say whether it
    /// does so once more after this run, and what stops the wait for the others.
    pub(super) async fn join(run: &Options, config: &DistConfig) -> Result<Self, TrainError> {
        let Some(launch) = run.launch.clone() else { return Ok(Self::default()) };
        let mut options = DistOptions::default();
        options.address.clone_from(&config.address);
        options.timeout = Duration::from_secs_f64(config.timeout_s);
        options.join = Duration::from_secs_f64(config.join_s);
        options.again = run.again;
        options.transport = config.transport;
        let ranks = wait_to_join(launch.clone(), options, &run.interrupt).await?;
        Ok(Self(Some(Connected { ranks, launch, channel: CHANNEL })))
    }

    /// Returns the connection, if there are other ranks.
    pub(super) fn ranks(&self) -> Option<&Ranks> {
        self.0.as_ref().map(|connected| &connected.ranks)
    }

    /// Returns the rank of this process, from 0.
    pub(super) fn rank(&self) -> usize {
        self.ranks().map_or(0, Ranks::rank)
    }

    /// Returns the number of ranks.
    pub(super) fn size(&self) -> usize {
        self.ranks().map_or(1, Ranks::size)
    }

    /// Returns true if this is rank 0, which writes all files and messages.
    pub(super) fn leads(&self) -> bool {
        self.rank() == 0
    }

    /// Returns the ranks as the batches in a place see them, whose messages are apart from all others. The batches that are
    /// played at once have different places.
    pub(super) fn of_batch(&self, place: usize) -> Self {
        let channel = BATCHES + place as u32;
        Self(self.0.clone().map(|connected| Connected { channel, ..connected }))
    }

    fn channel(&self) -> Option<Channel> {
        self.0.as_ref().map(|Connected { ranks, channel, .. }| ranks.channel(*channel))
    }

    /// Returns worker groups and options of the runtime of this rank: with a GPU of its own for each device, and its share of
    /// the machine's threads.
    pub(super) fn runtime(
        &self,
        mut workers: Vec<WorkerSpec>,
        mut options: RuntimeOptions,
    ) -> (Vec<WorkerSpec>, RuntimeOptions) {
        let Some(Connected { launch, .. }) = &self.0 else { return (workers, options) };
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
        on_devices(&mut workers, &mut options, |asked| device(asked, launch.local_rank, &visible));
        if options.threads == 0 {
            let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            options.threads = (all / launch.local_size.unwrap_or(1).max(1)).max(1);
        }
        (workers, options)
    }

    /// Returns the messages of all ranks, in their order.
    pub(super) async fn gather(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, TrainError> {
        match self.channel() {
            None => Ok(vec![own]),
            Some(channel) => Ok(blocking(move || channel.all_gather(&own)).await?),
        }
    }

    /// Returns the values of all ranks, in their order.
    async fn gather_values<T: Serialize + DeserializeOwned>(
        &self,
        own: &T,
    ) -> Result<Vec<T>, TrainError> {
        let message = serde_json::to_vec(own).map_err(|_| malformed_message(self.rank()))?;
        let mut all = Vec::new();
        for (rank, message) in self.gather(message).await?.iter().enumerate() {
            all.push(serde_json::from_slice(message).map_err(|_| malformed_message(rank))?);
        }
        Ok(all)
    }

    /// Sends a value of rank 0 to all others, and returns it.
    pub(super) async fn broadcast<T: Serialize + DeserializeOwned>(
        &self,
        own: Option<T>,
    ) -> Result<T, TrainError> {
        let Some(channel) = self.channel() else {
            return own.ok_or_else(|| TrainError::from(malformed_message(0)));
        };
        let message = serde_json::to_vec(&own).map_err(|_| malformed_message(self.rank()))?;
        let message = blocking(move || channel.broadcast(&message)).await?;
        let found: Option<T> =
            serde_json::from_slice(&message).map_err(|_| malformed_message(0))?;
        found.ok_or_else(|| malformed_message(0).into())
    }

    /// Returns the episodes of all ranks, by place. Those of this rank are `own`.
    pub(super) async fn exchange(
        &self,
        own: Vec<(usize, Episode)>,
    ) -> Result<Vec<(usize, Episode)>, TrainError> {
        if self.ranks().is_none() {
            return Ok(own);
        }
        let own = own.into_iter().map(|(place, mut episode)| {
            let log = std::mem::take(&mut episode.log);
            SentEpisodes { place, episode, log }
        });
        let own: Vec<SentEpisodes> = own.collect();
        let all = self.gather_values(&own).await?.into_iter().flatten();
        let all =
            all.map(|SentEpisodes { place, episode, log }| (place, Episode { log, ..episode }));
        let mut all: Vec<(usize, Episode)> = all.collect();
        all.sort_by_key(|(place, _)| *place);
        Ok(all)
    }

    /// Returns the replies of all ranks, by place.
    pub(super) async fn replies(
        &self,
        own: Vec<(usize, Vec<u32>)>,
    ) -> Result<Vec<Vec<u32>>, TrainError> {
        if self.ranks().is_none() {
            return Ok(own.into_iter().map(|(_, reply)| reply).collect());
        }
        let mut all = self.gather_values(&own).await?.concat();
        all.sort_by_key(|(place, _)| *place);
        Ok(all.into_iter().map(|(_, reply)| reply).collect())
    }

    /// Fails unless all ranks have the same version, configuration, data and weights.
    pub(super) async fn agree(&self, origin: &Origin) -> Result<(), TrainError> {
        if self.ranks().is_none() {
            return Ok(());
        }
        let all = self.gather_values(&facts(origin)).await?;
        for (rank, theirs) in all.iter().enumerate() {
            let found = differences(&all[0], theirs);
            if !found.is_empty() {
                return Err(RankError::Differs { rank, what: found.join(", ") }.into());
            }
        }
        Ok(())
    }

    /// Waits for the loss of a rank; forever if this process is alone.
    pub(super) async fn wait_for_failure(&self) -> TrainError {
        match self.ranks() {
            Some(ranks) => ranks.first_failure().await.into(),
            None => std::future::pending().await,
        }
    }

    /// Passes on that a rank is asked to stop: to rank 0, which ends the run after its step. Never returns.
    pub(super) async fn pass_on(&self, interrupt: &Interrupt) -> Infallible {
        let Some(ranks) = self.ranks().cloned() else { return std::future::pending().await };
        if self.leads() {
            interrupt.raise_for(ranks.stop_asked().await);
        } else {
            interrupt.or(std::future::pending::<()>()).await;
            // The loss of a rank ends this one by itself.
            drop(blocking(move || ranks.ask_to_stop()).await);
        }
        std::future::pending().await
    }

    /// Ends the part of this rank in a run. An error of this rank ends all others, and the loss of another rank is the
    /// error of this one, whatever operation it ended.
    pub(super) fn end<T>(&self, result: Result<T, TrainError>) -> Result<T, TrainError> {
        let Some(ranks) = self.ranks() else { return result };
        match (result, ranks.failure()) {
            (Ok(done), _) => {
                ranks.leave();
                Ok(done)
            }
            (Err(_), Some(failure)) => Err(failure.into()),
            (Err(error), None) => {
                ranks.abort(&error.to_string());
                Err(error)
            }
        }
    }

    /// Returns a guard that ends all other ranks if this one panics.
    pub(super) fn guard(&self) -> RankGuard {
        RankGuard(self.clone())
    }

    /// Waits until every rank has nothing more to do.
    pub(super) async fn finish(&self) -> Result<(), TrainError> {
        self.gather(Vec::new()).await.map(drop)
    }
}

/// Ends all other ranks if it is dropped by a panic.
pub(super) struct RankGuard(RankPeers);

impl Drop for RankGuard {
    fn drop(&mut self) {
        if let Some(ranks) = self.0.ranks().filter(|_| std::thread::panicking()) {
            ranks.abort("it panicked; what it printed says why");
        }
    }
}

/// Awaits operations on policies: all at once, or one after the other if policies are on several ranks, which must run
/// them in the same order.
pub(super) async fn join_all<T, E>(
    policies: &[Policy],
    operations: impl Iterator<Item = impl Future<Output = Result<T, E>>>,
) -> Result<Vec<T>, E> {
    if policies.iter().all(|policy| policy.ranks() == 1) {
        return try_join_all(operations).await;
    }
    let mut all = Vec::new();
    for operation in operations {
        all.push(operation.await?);
    }
    Ok(all)
}

/// Waits until all ranks have joined, or until this one is asked to stop.
async fn wait_to_join(
    launch: Launch,
    options: DistOptions,
    interrupt: &Interrupt,
) -> Result<Ranks, TrainError> {
    let stopped = TrainError::StoppedJoining { rank: launch.rank, size: launch.size };
    let mut joining = tokio::task::spawn_blocking(move || Ranks::join(&launch, &options));
    match interrupt.or(&mut joining).await {
        Some(Ok(Ok(ranks))) => Ok(ranks),
        Some(Ok(Err(error))) => match interrupt.or(tokio::time::sleep(SIGNALED)).await {
            Some(()) => Err(error.into()),
            None => Err(stopped),
        },
        Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
        None => {
            // If they do join, the others have to hear that this one has left.
            tokio::spawn(async move {
                if let Ok(Ok(ranks)) = joining.await {
                    ranks.abort("it was asked to stop while ranks joined");
                }
            });
            Err(stopped)
        }
    }
}

/// Runs a blocking operation on a thread of its own.
async fn blocking<T: Send + 'static>(
    operation: impl FnOnce() -> Result<T, RankError> + Send + 'static,
) -> Result<T, RankError> {
    match tokio::task::spawn_blocking(operation).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

fn malformed_message(rank: usize) -> RankError {
    let what = "it sends what this build of maverl does not read".to_owned();
    RankError::Differs { rank, what }
}

/// Returns the device of a rank: of a number of a GPU, the one that is as many further as the rank on its machine.
/// `visible` is the value of `CUDA_VISIBLE_DEVICES`; a process that sees one GPU takes it.
fn device(asked: DeviceChoice, local_rank: Option<usize>, visible: &str) -> DeviceChoice {
    let sees_one = !visible.is_empty() && !visible.contains(',');
    match asked {
        DeviceChoice::Cuda(first) if !sees_one => {
            DeviceChoice::Cuda(first + local_rank.unwrap_or(0))
        }
        other => other,
    }
}

/// Replaces every device that worker groups run on.
fn on_devices(
    workers: &mut [WorkerSpec],
    options: &mut RuntimeOptions,
    own: impl Fn(DeviceChoice) -> DeviceChoice,
) {
    options.device = own(options.device);
    for worker in workers {
        worker.device = worker.device.map(&own);
    }
}

/// Returns everything that a run depends on, by name. Settings of the machine are not among it, but a device is on
/// which bits depend on more than the plan.
fn facts(origin: &Origin) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let config = serde_json::to_value(&origin.config).unwrap_or_default();
    leaves(&mut Vec::new(), &config, &mut facts);
    let provenance = &origin.provenance;
    facts.insert("version of maverl".to_owned(), provenance.version.clone());
    facts.extend((!provenance.exact).then(|| ("device".to_owned(), provenance.device.clone())));
    for (part, hashes) in [("data", &provenance.data), ("weights", &provenance.weights)] {
        let named = hashes.iter().map(|(name, hash)| (format!("{part} of `{name}`"), hash.clone()));
        facts.extend(named);
    }
    facts
}

/// Adds the values of a configuration by their keys.
fn leaves(path: &mut Vec<String>, value: &serde_json::Value, facts: &mut BTreeMap<String, String>) {
    if let serde_json::Value::Object(table) = value {
        for (key, value) in table {
            path.push(key.clone());
            leaves(path, value, facts);
            path.pop();
        }
        return;
    }
    let names: Vec<&str> = path.iter().map(String::as_str).collect();
    let of_machine = match names.as_slice() {
        ["dist", "shard" | "round" | "transport"] => false,
        ["base" | "dist", ..] => true,
        ["runtime", ..] => may_change(path),
        _ => false,
    };
    if !of_machine {
        facts.insert(format!("`{}`", path.join(".")), value.to_string());
    }
}

/// Returns the first facts in which a rank differs from rank 0.
fn differences(first: &BTreeMap<String, String>, theirs: &BTreeMap<String, String>) -> Vec<String> {
    let names = first.keys().chain(theirs.keys().filter(|name| !first.contains_key(*name)));
    let different = names.filter(|name| first.get(*name) != theirs.get(*name));
    let lines = different.take(NAMED).map(|name| {
        let [here, there] = [first, theirs].map(|facts| short_fact(facts.get(name)));
        format!("{name} is {there} there and {here} on rank 0")
    });
    lines.collect()
}

fn short_fact(value: Option<&String>) -> String {
    let value = value.map_or("not set", String::as_str);
    if value.chars().count() > 24 { value.chars().take(12).collect() } else { value.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::ModelSource;

    #[test]
    fn every_rank_of_a_machine_has_a_gpu_of_its_own() {
        let cuda = DeviceChoice::Cuda;
        assert_eq!(device(cuda(0), Some(3), ""), cuda(3));
        assert_eq!(device(cuda(4), Some(3), "0,1,2,3,4,5,6,7"), cuda(7));
        assert_eq!(device(cuda(0), Some(3), "GPU-7d"), cuda(0));
        assert_eq!(device(cuda(1), None, ""), cuda(1));
        assert_eq!(device(DeviceChoice::Cpu, Some(3), ""), DeviceChoice::Cpu);
    }

    #[test]
    fn worker_groups_with_a_gpu_of_their_own_have_another_one_on_every_rank() {
        let cuda = DeviceChoice::Cuda;
        let worker = |device| {
            let mut worker = WorkerSpec::new("p", ModelSource::Builtin("tiny".to_owned()));
            worker.device = device;
            worker
        };
        let mut workers = [Some(cuda(1)), Some(DeviceChoice::Cpu), None].map(worker);
        let mut options = RuntimeOptions { device: cuda(0), ..RuntimeOptions::default() };
        on_devices(&mut workers, &mut options, |asked| device(asked, Some(2), ""));
        assert_eq!(options.device, cuda(2));
        let found = workers.map(|worker| worker.device);
        assert_eq!(found, [Some(cuda(3)), Some(DeviceChoice::Cpu), None]);
    }

    #[test]
    fn differences_name_the_key_and_both_values() {
        let facts = |steps: &str, hash: &str| {
            BTreeMap::from([
                ("`steps`".to_owned(), steps.to_owned()),
                ("data of `train`".to_owned(), hash.to_owned()),
            ])
        };
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        assert!(differences(&facts("3", &a), &facts("3", &a)).is_empty());
        let found = differences(&facts("3", &a), &facts("4", &b));
        assert_eq!(found[0], "`steps` is 4 there and 3 on rank 0");
        assert!(found[1].contains("bbbbbbbbbbbb there"), "{found:?}");
    }
}

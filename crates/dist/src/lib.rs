//! Processes that train together: how they were launched, how they are connected, and what they compute in common.
//!
//! - Every sum is added in the order of ranks, so equal ranks give equal bits, on all of them.
//! - Every rank calls the same operations of a channel in the same order. Channels are independent of each other.
//! - The loss of a rank ends every pending and every later operation on all others, with its name.
//!
//! A [`Channel`] offers collective operations, such as a sum, to one worker group. A run of one process has none. A
//! ring all-reduce would give the elements of an array sums of different orders.
#![warn(missing_docs)]

mod channel;
mod error;
mod exchange;
mod inbox;
mod launch;
mod machine;
mod message;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "cuda")]
mod nccl;
mod passes;
mod ranges;
mod schedule;
mod simulate;
mod steps;
mod tcp;
mod units;

#[cfg(feature = "mpi")]
pub use self::mpi::{end_failed_job, leave_job};
pub use channel::{Channel, parts};
pub use error::RankError;
pub use exchange::Exchanges;
pub use launch::Launch;
pub use machine::Machine;
#[cfg(feature = "cuda")]
pub use nccl::{Nccl, NcclOptions, NcclSpan};
pub use passes::Phase;
pub use ranges::Machines;
pub use schedule::{Exchange, ExchangeKind, Pass, Schedule, Work};
pub use simulate::{Links, Simulation, simulate};
pub use units::{LayerSize, Unit, UnitSizes};

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Transports between ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// TCP between the processes, also from and to GPUs.
    #[default]
    Tcp,
    /// NCCL between GPUs; all else over TCP.
    Nccl,
    /// MPI between the processes of `mpirun` or `srun`, also from and to GPUs.
    Mpi,
}

/// Division of a model among ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Shard {
    /// Every rank has all weights, sums and moments.
    #[default]
    None,
    /// Each rank has its share of the moments (ZeRO-1).
    Optimizer,
    /// Each machine has the weights in use once, and each rank its share of masters, sums and moments.
    Hybrid,
    /// Each rank has its share of weights, sums and moments (ZeRO-3).
    Full,
}

impl Shard {
    /// Returns the value as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Optimizer => "optimizer",
            Self::Hybrid => "hybrid",
            Self::Full => "full",
        }
    }
}

/// Options of the connection between ranks.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DistOptions {
    /// Connection.
    pub transport: Transport,
    /// Address of rank 0, `host:port`; `None` takes that of the launcher. MPI needs none.
    pub address: Option<String>,
    /// Time within which the loss of a rank ends all others.
    pub timeout: Duration,
    /// Time within which all ranks must have joined.
    pub join: Duration,
    /// True if this process joins the same ranks again after it has taken leave. MPI connects them once, so it stays open
    /// until then.
    pub again: bool,
}

impl Default for DistOptions {
    fn default() -> Self {
        let (timeout, join) = (Duration::from_secs(60), Duration::from_secs(300));
        Self { transport: Transport::default(), address: None, timeout, join, again: false }
    }
}

/// A connection of every rank with every other one.
pub(crate) trait Link: Debug + Send + Sync {
    /// Returns the rank of this process.
    fn rank(&self) -> usize;
    /// Returns the number of ranks.
    fn size(&self) -> usize;
    /// Sends a message to another rank.
    fn send(&self, to: usize, channel: u32, message: &[u8]) -> Result<(), RankError>;
    /// Waits for the next message of another rank on a channel.
    fn receive(&self, from: usize, channel: u32) -> Result<Vec<u8>, RankError>;
    /// Ends all operations here and on the other ranks, which get the reason.
    fn abort(&self, reason: &str);
    /// Takes leave of the other ranks: the end of this process is no loss.
    fn leave(&self);
    /// Returns a receiver of the first failure.
    fn failure(&self) -> watch::Receiver<Option<RankError>>;
    /// Returns a receiver of the last rank that asked for a stop.
    fn stop_asked(&self) -> watch::Receiver<Option<usize>>;
}

/// This process among those that train together. Clones share the connection.
#[derive(Debug, Clone)]
pub struct Ranks {
    link: Arc<dyn Link>,
    launch: Arc<Launch>,
}

impl Ranks {
    /// Connects a process with the others of its launch. Waits until all have joined.
    ///
    /// # Errors
    ///
    /// If there is no address, or a rank does not join in time.
    pub fn join(launch: &Launch, options: &DistOptions) -> Result<Self, RankError> {
        let link: Arc<dyn Link> = match options.transport {
            Transport::Tcp | Transport::Nccl => Arc::new(tcp::Tcp::join(launch, options)?),
            #[cfg(feature = "mpi")]
            Transport::Mpi => self::mpi::Mpi::join(launch, options)?,
            #[cfg(not(feature = "mpi"))]
            Transport::Mpi => {
                let reason = maverl_settings::lacks_feature!("mpi").to_owned();
                return Err(RankError::Launch { launcher: "MPI", reason });
            }
        };
        Ok(Self { link, launch: Arc::new(launch.clone()) })
    }

    /// Returns the rank of this process, from 0.
    pub fn rank(&self) -> usize {
        self.link.rank()
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.link.size()
    }

    /// Returns the channel of a number, of which every rank has one.
    pub fn channel(&self, number: u32) -> Channel {
        Channel::new(Arc::clone(&self.link), number).launched_by(&self.launch)
    }

    /// Ends all operations here and on the other ranks, which get the reason.
    pub fn abort(&self, reason: &str) {
        self.link.abort(reason);
    }

    /// Takes leave of the other ranks: the end of this process is no loss. Every rank calls this when it has no more
    /// operations.
    pub fn leave(&self) {
        self.link.leave();
    }

    /// Asks rank 0 to end the run early.
    ///
    /// # Errors
    ///
    /// If a rank is lost.
    pub fn ask_to_stop(&self) -> Result<(), RankError> {
        self.link.send(0, message::STOP, &[])
    }

    /// Waits until another rank asks for a stop, and returns it.
    pub async fn stop_asked(&self) -> usize {
        let mut stop = self.link.stop_asked();
        match stop.wait_for(Option::is_some).await.ok().and_then(|rank| *rank) {
            Some(rank) => rank,
            // The connection was closed.
            None => std::future::pending().await,
        }
    }

    /// Returns the first failure, if there was one.
    pub fn failure(&self) -> Option<RankError> {
        self.link.failure().borrow().clone()
    }

    /// Waits for the first failure.
    pub async fn first_failure(&self) -> RankError {
        let mut failure = self.link.failure();
        let found = failure.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
        match found {
            Some(error) => error,
            // The connection was closed without a failure.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod draw;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

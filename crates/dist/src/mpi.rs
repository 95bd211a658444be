//! Messages over MPI, between the processes that `mpirun` or `srun` has started.
//!
//! - One thread calls MPI, by calls that do not block, so that the loss of a rank and a time limit end every wait. It also
//!   initializes and ends MPI.
//! - Messages have the pieces and headers that they have over TCP, and sums are those of [`Channel`].
//! - MPI is initialized once in a process. Runs of a process that follow each other use one connection.
//! - After a failure no rank ends MPI, which would wait for the lost one: `MPI_Abort` ends all processes, as soon as this one
//!   has written its message.

mod carrier;
mod link;
mod world;

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use super::message::{GREETING, own_place};
use super::{Channel, DistOptions, Launch, Link, RankError};
use carrier::Carrier;
pub(crate) use link::Mpi;
use world::{World, library};

/// Time for which a process waits for its end by `MPI_Abort`.
const ENDING: Duration = Duration::from_secs(2);

/// Connection of this process, of which MPI allows one.
static JOINED: OnceLock<Arc<Mpi>> = OnceLock::new();

impl Mpi {
    /// Connects with all ranks: by the connection of the run before, or by a new one. Waits until all have joined.
    pub(super) fn join(launch: &Launch, options: &DistOptions) -> Result<Arc<Self>, RankError> {
        let open = JOINED.get().filter(|joined| joined.again.load(Ordering::SeqCst));
        let link = match open {
            Some(joined) => joined.rejoin()?,
            None => Self::initialize(launch, options)?,
        };
        link.timeout.store(options.timeout.as_millis() as u64, Ordering::SeqCst);
        link.again.store(options.again, Ordering::SeqCst);
        Ok(link)
    }

    /// Returns the connection of the run before when all ranks have ended that run.
    fn rejoin(self: &Arc<Self>) -> Result<Arc<Self>, RankError> {
        if self.inbox.has_failed() {
            return Err(RankError::Join {
                rank: self.rank,
                size: self.size,
                address: "MPI_COMM_WORLD".to_owned(),
                reason: "a run before this one has failed, and MPI connects ranks once; start the job again"
                    .to_owned(),
            });
        }
        Channel::new(Arc::<Self>::clone(self), GREETING).barrier()?;
        Ok(Arc::clone(self))
    }

    /// Initializes MPI on a thread of its own, and waits until all ranks have.
    fn initialize(launch: &Launch, options: &DistOptions) -> Result<Arc<Self>, RankError> {
        let link = Arc::new(Self::new(launch, options.timeout));
        let (started, start) = mpsc::sync_channel(1);
        let (own, expected) = (Arc::clone(&link), launch.clone());
        let thread = std::thread::Builder::new().name("mpi".to_owned());
        let thread = thread.spawn(move || carry(own, &expected, &started));
        thread.map_err(|error| not_joined(launch, format!("no thread: {error}")))?;
        let begun = start.recv_timeout(options.join);
        let begun = begun.unwrap_or_else(|_| Err("MPI_Init did not end in time".to_owned()));
        begun.map_err(|reason| not_joined(launch, reason))?;
        drop(JOINED.set(Arc::clone(&link)));
        let all = Channel::new(Arc::<Self>::clone(&link), GREETING);
        let places = all.all_gather(own_place().as_bytes())?;
        let places = places.iter().map(|place| String::from_utf8_lossy(place).into_owned());
        drop(link.places.set(places.collect()));
        Ok(link)
    }
}

/// Takes leave of the ranks that this process joined over MPI, if it has not joined them again as it was to
/// ([`DistOptions::again`]). A process calls this before it ends without an error.
pub fn leave_job() {
    let Some(joined) = JOINED.get() else { return };
    if joined.again.swap(false, Ordering::SeqCst) {
        joined.leave();
    }
}

/// Ends all processes of the job, if a rank has failed, or if this one has not joined the others again as it was to. A process
/// calls this when it has written its message. Nothing happens if it has not joined others over MPI.
pub fn end_failed_job() {
    let Some(joined) = JOINED.get() else { return };
    if joined.again.load(Ordering::SeqCst) {
        joined.abort("it ended between two runs; what it printed says why");
    }
    if !joined.inbox.has_failed() {
        return;
    }
    joined.ending.store(true, Ordering::SeqCst);
    // The thread of MPI ends this process.
    std::thread::sleep(ENDING);
}

/// Runs the thread of MPI. `started` gets its beginning, or the reason why there is none.
fn carry(own: Arc<Mpi>, launch: &Launch, started: &mpsc::SyncSender<Result<(), String>>) {
    match World::start().and_then(|world| fits(world, launch)) {
        Ok(world) => {
            let carrier = Carrier::new(world, own);
            if started.send(Ok(())).is_ok() {
                carrier.run();
            }
        }
        Err(reason) => drop(started.send(Err(reason))),
    }
}

/// Returns the error of a rank that cannot join the others.
fn not_joined(launch: &Launch, reason: String) -> RankError {
    let (rank, size) = (launch.rank, launch.size);
    RankError::Join { rank, size, address: "MPI_COMM_WORLD".to_owned(), reason }
}

/// Returns the processes of MPI, if they are the ranks of the launcher.
fn fits(world: World, launch: &Launch) -> Result<World, String> {
    let Launch { launcher, rank, size, .. } = launch;
    if (world.rank(), world.size()) == (*rank, *size) {
        return Ok(world);
    }
    Err(format!(
        "this process is {} of {} for {}, and {rank} of {size} for {launcher}; start all with `mpirun`, or with `srun --mpi`, \
         of the MPI that maverl was built with, or write `dist.transport = \"tcp\"`",
        world.rank(),
        world.size(),
        library()
    ))
}

//! Messages over MPI, between the processes that `mpirun` or `srun` has started.
//!
//! - One thread calls MPI, by calls that do not block, so that the loss of a rank and a time limit end every wait. It also
//!   initializes and ends MPI.
//! - Messages have the pieces and headers that they have over TCP, and sums are those of [`Channel`].
//! - MPI is initialized once in a process. Runs of a process that follow each other use one connection.
//! - After a failure no rank ends MPI, which would wait for the lost one: `MPI_Abort` ends all processes, as soon as this one
//!   has written its message.

mod carrier;
mod world;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::inbox::Inbox;
use super::message::{GREETING, PIECE, own_place, pieces};
use super::{Channel, DistOptions, Launch, Link, RankError};
use carrier::Carrier;
use world::{World, library};

/// Bytes that are queued or being sent before a sender waits, which bounds the memory of messages.
const QUEUED: usize = 16 * PIECE;
/// Time between two looks at a failure while a sender or the end waits.
const LOOK: Duration = Duration::from_millis(50);
/// Time for which a process waits for its end by `MPI_Abort`.
const ENDING: Duration = Duration::from_secs(2);

/// Connection of this process, of which MPI allows one.
static JOINED: OnceLock<Arc<Mpi>> = OnceLock::new();

/// Connection of a rank with all others. The thread of MPI shares it with the rest of the process.
#[derive(Debug)]
pub(super) struct Mpi {
    rank: usize,
    size: usize,
    /// Milliseconds within which the loss of a rank ends all others.
    timeout: AtomicU64,
    inbox: Inbox,
    outbox: Mutex<Outbox>,
    /// Tells the thread of MPI that there is something to do.
    work: Condvar,
    /// Tells senders that there is room.
    room: Condvar,
    /// Host and process of each rank, for messages.
    places: OnceLock<Vec<String>>,
    /// True if this rank joins the others again after it has taken leave of a run.
    again: AtomicBool,
    /// True when this rank takes leave of the job.
    leaving: AtomicBool,
    /// True when this process is to end after a failure.
    ending: AtomicBool,
    end: Mutex<End>,
    ended: Condvar,
}

/// Pieces to be sent.
#[derive(Debug, Default)]
struct Outbox {
    /// Ranks, and pieces with their headers.
    pieces: Vec<(usize, Vec<u8>)>,
    /// Bytes of these pieces and of those that are being sent.
    bytes: usize,
}

/// End of MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Ahead,
    /// It ends since a time.
    Begun(Instant),
    Done,
}

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
        let failed = |reason: String| RankError::Join {
            rank: launch.rank,
            size: launch.size,
            address: "MPI_COMM_WORLD".to_owned(),
            reason,
        };
        let link = Arc::new(Self::new(launch, options.timeout));
        let (started, start) = mpsc::sync_channel(1);
        let (own, expected) = (Arc::clone(&link), launch.clone());
        let body = move || match World::start().and_then(|world| fits(world, &expected)) {
            Ok(world) => {
                let carrier = Carrier::new(world, own);
                if started.send(Ok(())).is_ok() {
                    carrier.run();
                }
            }
            Err(reason) => drop(started.send(Err(reason))),
        };
        let thread = std::thread::Builder::new().name("mpi".to_owned()).spawn(body);
        thread.map_err(|error| failed(format!("no thread: {error}")))?;
        let begun = start.recv_timeout(options.join);
        begun.map_err(|_| failed("MPI_Init did not end in time".to_owned()))?.map_err(failed)?;
        drop(JOINED.set(Arc::clone(&link)));
        let all = Channel::new(Arc::<Self>::clone(&link), GREETING);
        let places = all.all_gather(own_place().as_bytes())?;
        let text = |place: &Vec<u8>| String::from_utf8_lossy(place).into_owned();
        drop(link.places.set(places.iter().map(text).collect()));
        Ok(link)
    }

    fn new(launch: &Launch, timeout: Duration) -> Self {
        Self {
            rank: launch.rank,
            size: launch.size,
            timeout: AtomicU64::new(timeout.as_millis() as u64),
            inbox: Inbox::default(),
            outbox: Mutex::default(),
            work: Condvar::new(),
            room: Condvar::new(),
            places: OnceLock::new(),
            again: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            end: Mutex::new(End::Ahead),
            ended: Condvar::new(),
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout.load(Ordering::SeqCst))
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a piece when there is room.
    fn queue(&self, to: usize, piece: Vec<u8>) -> Result<(), RankError> {
        let mut outbox = self.outbox();
        while outbox.bytes > 0 && outbox.bytes + piece.len() > QUEUED {
            if let Some(error) = self.inbox.failure() {
                return Err(error);
            }
            let waited = self.room.wait_timeout(outbox, LOOK);
            outbox = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(error) = self.inbox.failure() {
            return Err(error);
        }
        outbox.bytes += piece.len();
        outbox.pieces.push((to, piece));
        self.work.notify_one();
        Ok(())
    }

    /// Takes the pieces that are queued.
    fn queued(&self) -> Vec<(usize, Vec<u8>)> {
        std::mem::take(&mut self.outbox().pieces)
    }

    /// Counts bytes that are sent without having been queued.
    fn count(&self, bytes: usize) {
        self.outbox().bytes += bytes;
    }

    /// Records that bytes were sent.
    fn sent(&self, bytes: usize) {
        self.outbox().bytes -= bytes;
        self.room.notify_all();
    }

    /// Waits for something to send, at most for a time.
    fn wait(&self, most: Duration) {
        let outbox = self.outbox();
        if outbox.pieces.is_empty() {
            drop(self.work.wait_timeout(outbox, most));
        }
    }

    /// Returns host and process of a rank.
    fn place(&self, rank: usize) -> String {
        let place = self.places.get().and_then(|places| places.get(rank));
        place.cloned().unwrap_or_else(|| "of MPI_COMM_WORLD".to_owned())
    }

    /// Records a failure and ends all operations. The thread of MPI tells the other ranks.
    fn fail(&self, error: &RankError) {
        self.inbox.fail(error);
        self.inbox.wake();
    }

    fn set_end(&self, end: End) {
        *self.end() = end;
        self.ended.notify_all();
    }
}

impl Link for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn send(&self, to: usize, channel: u32, message: &[u8]) -> Result<(), RankError> {
        pieces(channel, message)
            .try_for_each(|(header, piece)| self.queue(to, [&header.encode(), piece].concat()))
    }

    fn receive(&self, from: usize, channel: u32) -> Result<Vec<u8>, RankError> {
        self.inbox.receive(from, channel)
    }

    fn abort(&self, reason: &str) {
        let (rank, reason) = (self.rank, reason.to_owned());
        self.fail(&RankError::Ended { rank, place: own_place(), reason });
    }

    /// Waits until all ranks have taken leave and MPI has ended, without which a launcher takes the end of a process for a
    /// failure. A connection that the next run uses stays open.
    fn leave(&self) {
        if self.again.load(Ordering::SeqCst) {
            return;
        }
        self.leaving.store(true, Ordering::SeqCst);
        let mut end = self.end();
        while !self.inbox.has_failed() {
            match *end {
                End::Done => return,
                End::Begun(at) if at.elapsed() > self.timeout() => return,
                _ => {}
            }
            end = self.ended.wait_timeout(end, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn failure(&self) -> watch::Receiver<Option<RankError>> {
        self.inbox.subscribe()
    }

    fn stop_asked(&self) -> watch::Receiver<Option<usize>> {
        self.inbox.stop_asked()
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

//! Connection over MPI: what the thread of MPI shares with the rest of the process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::inbox::Inbox;
use crate::message::{PIECE, own_place, pieces};
use crate::{Launch, Link, RankError};

/// Bytes that are queued or being sent before a sender waits, which bounds the memory of messages.
const QUEUED: usize = 16 * PIECE;
/// Time between two looks at a failure while a sender or the end waits.
const LOOK: Duration = Duration::from_millis(50);

/// Connection of a rank with all others. The thread of MPI shares it with the rest of the process.
#[derive(Debug)]
pub(crate) struct Mpi {
    pub(super) rank: usize,
    pub(super) size: usize,
    /// Milliseconds within which the loss of a rank ends all others.
    pub(super) timeout: AtomicU64,
    pub(super) inbox: Inbox,
    outbox: Mutex<Outbox>,
    /// Tells the thread of MPI that there is something to do.
    work: Condvar,
    /// Tells senders that there is room.
    room: Condvar,
    /// Host and process of each rank, for messages.
    pub(super) places: OnceLock<Vec<String>>,
    /// True if this rank joins the others again after it has taken leave of a run.
    pub(super) again: AtomicBool,
    /// True when this rank takes leave of the job.
    pub(super) leaving: AtomicBool,
    /// True when this process is to end after a failure.
    pub(super) ending: AtomicBool,
    end: Mutex<MpiEnd>,
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
pub(super) enum MpiEnd {
    Ahead,
    /// It ends since a time.
    Begun(Instant),
    Done,
}

impl Mpi {
    pub(super) fn new(launch: &Launch, timeout: Duration) -> Self {
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
            end: Mutex::new(MpiEnd::Ahead),
            ended: Condvar::new(),
        }
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout.load(Ordering::SeqCst))
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) -> MutexGuard<'_, MpiEnd> {
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
    pub(super) fn queued(&self) -> Vec<(usize, Vec<u8>)> {
        std::mem::take(&mut self.outbox().pieces)
    }

    /// Counts bytes that are sent without having been queued.
    pub(super) fn count(&self, bytes: usize) {
        self.outbox().bytes += bytes;
    }

    /// Records that bytes were sent.
    pub(super) fn sent(&self, bytes: usize) {
        self.outbox().bytes -= bytes;
        self.room.notify_all();
    }

    /// Waits for something to send, at most for a time.
    pub(super) fn wait(&self, most: Duration) {
        let outbox = self.outbox();
        if outbox.pieces.is_empty() {
            drop(self.work.wait_timeout(outbox, most));
        }
    }

    /// Returns host and process of a rank.
    pub(super) fn place(&self, rank: usize) -> String {
        let place = self.places.get().and_then(|places| places.get(rank));
        place.cloned().unwrap_or_else(|| "of MPI_COMM_WORLD".to_owned())
    }

    /// Records a failure and ends all operations. The thread of MPI tells the other ranks.
    pub(super) fn fail(&self, error: &RankError) {
        self.inbox.fail(error);
        self.inbox.wake();
    }

    pub(super) fn set_end(&self, end: MpiEnd) {
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
                MpiEnd::Done => return,
                MpiEnd::Begun(at) if at.elapsed() > self.timeout() => return,
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

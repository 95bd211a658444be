//! One connection: its writing half, its signs of life.

use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::join::Joined;

/// Time for which a blocked write is not interrupted.
pub(super) const BLOCKED: Duration = Duration::from_millis(100);

/// Another rank.
#[derive(Debug)]
pub(super) struct TcpPeer {
    /// Host and process, for messages.
    pub(super) place: String,
    pub(super) out: Mutex<Out>,
    /// The same connection, to shut it down while a write is blocked.
    pub(super) stream: TcpStream,
    /// Milliseconds from the start to the last sign of life.
    pub(super) heard: AtomicU64,
    /// True when the rank has taken leave.
    pub(super) left: AtomicBool,
}

/// Writing half of a connection.
#[derive(Debug)]
pub(super) struct Out {
    pub(super) stream: TcpStream,
    /// Rest of a heartbeat that was written in part.
    pub(super) rest: Vec<u8>,
}

impl TcpPeer {
    pub(super) fn new(Joined { stream, place }: Joined) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(Some(BLOCKED))?;
        let out = Mutex::new(Out { stream: stream.try_clone()?, rest: Vec::new() });
        let (heard, left) = (AtomicU64::new(0), AtomicBool::new(false));
        Ok(Self { place, out, stream, heard, left })
    }

    pub(super) fn lock_outgoing(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the writing half if it is free within a time.
    pub(super) fn try_out(&self, patience: Duration) -> Option<MutexGuard<'_, Out>> {
        let start = Instant::now();
        loop {
            match self.out.try_lock() {
                Ok(out) => return Some(out),
                Err(_) if start.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(_) => return None,
            }
        }
    }
}

/// Returns true if a write or a read timed out, or was interrupted.
pub(super) fn is_blocked(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

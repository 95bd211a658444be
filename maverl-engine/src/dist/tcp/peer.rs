//! One connection: its writing half, its signs of life, the headers of its messages.

use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::join::Joined;
use crate::dist::RankError;

/// Length of a header: channel, length of the piece, 1 if the message goes on.
pub(super) const HEADER: usize = 9;
/// Time for which a blocked write is not interrupted.
pub(super) const BLOCKED: Duration = Duration::from_millis(100);

/// Another rank.
#[derive(Debug)]
pub(super) struct Peer {
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

impl Peer {
    pub(super) fn new(Joined { stream, place }: Joined) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(Some(BLOCKED))?;
        let out = Mutex::new(Out { stream: stream.try_clone()?, rest: Vec::new() });
        let (heard, left) = (AtomicU64::new(0), AtomicBool::new(false));
        Ok(Self { place, out, stream, heard, left })
    }

    pub(super) fn out(&self) -> MutexGuard<'_, Out> {
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

pub(super) fn header(channel: u32, length: usize, more: bool) -> [u8; HEADER] {
    let [c0, c1, c2, c3] = channel.to_le_bytes();
    let [l0, l1, l2, l3] = (length as u32).to_le_bytes();
    [c0, c1, c2, c3, l0, l1, l2, l3, u8::from(more)]
}

/// Returns true if a write or a read timed out, or was interrupted.
pub(super) fn is_blocked(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// Returns the failure that a rank reports.
pub(super) fn reported(text: &str, from: usize) -> RankError {
    let mut lines = text.splitn(4, '\n');
    let mut next = || lines.next().unwrap_or_default().to_owned();
    let (kind, rank, place, reason) = (next(), next(), next(), next());
    let rank = rank.parse().unwrap_or(from);
    match kind.as_str() {
        "L" => RankError::Lost { rank, place, reason },
        _ => RankError::Ended { rank, place, reason },
    }
}

/// Returns host and process, for messages of other ranks.
pub(super) fn own_place() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "process" } else { host.trim() };
    format!("{host}, pid {}", std::process::id())
}

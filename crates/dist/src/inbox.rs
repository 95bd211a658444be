//! Messages that have arrived, and the failure that ends every wait for others.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::RankError;

/// Longest message in memory, against connections that are none of ours.
const LONGEST: usize = 1 << 36;

/// Messages of all other ranks, and the first failure.
#[derive(Debug)]
pub(super) struct Inbox {
    messages: Mutex<PeerMessages>,
    arrived: Condvar,
    failure: watch::Sender<Option<RankError>>,
    /// The last rank that asked for a stop.
    stop: watch::Sender<Option<usize>>,
}

/// Messages by rank and channel.
#[derive(Debug, Default)]
struct PeerMessages {
    complete: BTreeMap<(usize, u32), VecDeque<Vec<u8>>>,
    incomplete: BTreeMap<(usize, u32), Vec<u8>>,
}

impl Default for Inbox {
    fn default() -> Self {
        let (failure, stop) = (watch::Sender::new(None), watch::Sender::new(None));
        Self { messages: Mutex::default(), arrived: Condvar::new(), failure, stop }
    }
}

impl Inbox {
    fn messages(&self) -> MutexGuard<'_, PeerMessages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next message of a rank on a channel.
    pub(super) fn receive(&self, from: usize, channel: u32) -> Result<Vec<u8>, RankError> {
        let mut messages = self.messages();
        loop {
            let waiting = messages.complete.get_mut(&(from, channel));
            if let Some(message) = waiting.and_then(VecDeque::pop_front) {
                return Ok(message);
            }
            if let Some(error) = self.failure() {
                return Err(error);
            }
            messages = self.arrived.wait(messages).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Adds a piece of a message of a rank on a channel. The message is received after its last piece.
    pub(super) fn deliver(
        &self,
        place: (usize, u32),
        piece: Vec<u8>,
        more: bool,
    ) -> io::Result<()> {
        let mut messages = self.messages();
        let mut message = messages.incomplete.remove(&place).unwrap_or_default();
        if message.len() + piece.len() > LONGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
        }
        if message.is_empty() {
            message = piece
        } else {
            message.extend_from_slice(&piece)
        }
        if more {
            messages.incomplete.insert(place, message);
        } else {
            messages.complete.entry(place).or_default().push_back(message);
            self.arrived.notify_all();
        }
        Ok(())
    }

    /// Returns the first failure, if there was one.
    pub(super) fn failure(&self) -> Option<RankError> {
        self.failure.borrow().clone()
    }

    /// Returns true after the first failure.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    /// Returns a receiver of the first failure.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<RankError>> {
        self.failure.subscribe()
    }

    /// Records that a rank asks for a stop.
    pub(super) fn stop(&self, rank: usize) {
        self.stop.send_replace(Some(rank));
    }

    /// Returns a receiver of the last rank that asked for a stop.
    pub(super) fn stop_asked(&self) -> watch::Receiver<Option<usize>> {
        self.stop.subscribe()
    }

    /// Records a failure, and returns true if it is the first. [`Inbox::wake`] ends the waits.
    pub(super) fn fail(&self, error: &RankError) -> bool {
        self.failure.send_if_modified(|failure| {
            let first = failure.is_none();
            failure.get_or_insert_with(|| error.clone());
            first
        })
    }

    /// Ends all waits after a failure.
    pub(super) fn wake(&self) {
        // A receiver either sees the failure, or waits already.
        drop(self.messages());
        self.arrived.notify_all();
    }
}

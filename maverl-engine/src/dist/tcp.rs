//! Connections over TCP: one between every two ranks, with heartbeats.

mod join;
mod peer;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::{DistOptions, Launch, Link, RankError};
use join::Joined;
use peer::{BLOCKED, HEADER, Out, Peer, header, is_blocked, own_place, reported};

/// Channels of the connection itself.
const HEARTBEAT: u32 = u32::MAX;
const ABORT: u32 = u32::MAX - 1;
const LEAVE: u32 = u32::MAX - 2;
/// Longest piece of a message.
const PIECE: usize = 1 << 22;
/// Longest message in memory, against connections that are none of ours.
const LONGEST: usize = 1 << 36;
/// Time in which other ranks may report why a connection was closed.
const REPORT: Duration = Duration::from_millis(300);

/// Connections of a rank with all others.
#[derive(Debug)]
pub(super) struct Tcp(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    rank: usize,
    /// Connections by rank; `None` at its own.
    peers: Vec<Option<Peer>>,
    inbox: Mutex<Inbox>,
    arrived: Condvar,
    failure: watch::Sender<Option<RankError>>,
    /// True when this rank has taken leave.
    left: AtomicBool,
    timeout: Duration,
    start: Instant,
}

/// Messages that have arrived, by rank and channel.
#[derive(Debug, Default)]
struct Inbox {
    complete: BTreeMap<(usize, u32), VecDeque<Vec<u8>>>,
    incomplete: BTreeMap<(usize, u32), Vec<u8>>,
}

impl Tcp {
    /// Connects with all other ranks, and starts a thread for each and one for the heartbeats.
    pub(super) fn join(launch: &Launch, options: &DistOptions) -> Result<Self, RankError> {
        let joined = join::join(launch, options)?;
        let failed = |error: io::Error| RankError::Join {
            rank: launch.rank,
            size: launch.size,
            address: "the threads of its connections".to_owned(),
            reason: error.to_string(),
        };
        let peer = |joined: Option<Joined>| joined.map(Peer::new).transpose();
        let peers: io::Result<Vec<Option<Peer>>> = joined.into_iter().map(peer).collect();
        let shared = Arc::new(Shared {
            rank: launch.rank,
            peers: peers.map_err(failed)?,
            inbox: Mutex::default(),
            arrived: Condvar::new(),
            failure: watch::Sender::new(None),
            left: AtomicBool::new(false),
            timeout: options.timeout,
            start: Instant::now(),
        });
        let spawn = |name: String, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name).spawn(body).map(drop).map_err(failed)
        };
        for rank in shared.others() {
            let shared = Arc::clone(&shared);
            spawn(format!("rank {rank}"), Box::new(move || shared.read(rank)))?;
        }
        let beating = Arc::clone(&shared);
        spawn("heartbeat".to_owned(), Box::new(move || beating.beat()))?;
        Ok(Self(shared))
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        self.leave();
        // The reading threads end, and the connections with them.
        self.0.peers.iter().flatten().for_each(|peer| drop(peer.stream.shutdown(Shutdown::Write)));
    }
}

impl Link for Tcp {
    fn rank(&self) -> usize {
        self.0.rank
    }

    fn size(&self) -> usize {
        self.0.peers.len()
    }

    fn send(&self, to: usize, channel: u32, message: &[u8]) -> Result<(), RankError> {
        let Some(peer) = &self.0.peers[to] else { return Ok(()) };
        let mut out = peer.out();
        let mut pieces = message.chunks(PIECE).peekable();
        let first = pieces.peek().is_none().then_some(message);
        let mut pieces = first.into_iter().chain(pieces).peekable();
        while let Some(piece) = pieces.next() {
            let header = header(channel, piece.len(), pieces.peek().is_some());
            for bytes in [header.as_slice(), piece] {
                self.0.write(&mut out, bytes).map_err(|error| self.0.closed(to, &error))?;
            }
        }
        Ok(())
    }

    fn receive(&self, from: usize, channel: u32) -> Result<Vec<u8>, RankError> {
        let mut inbox = self.0.inbox();
        loop {
            let waiting = inbox.complete.get_mut(&(from, channel));
            if let Some(message) = waiting.and_then(VecDeque::pop_front) {
                return Ok(message);
            }
            if let Some(error) = self.0.failure.borrow().clone() {
                return Err(error);
            }
            inbox = self.0.arrived.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn abort(&self, reason: &str) {
        let own =
            RankError::Ended { rank: self.0.rank, place: own_place(), reason: reason.to_owned() };
        self.0.fail(own);
    }

    fn leave(&self) {
        if !self.0.left.swap(true, Ordering::SeqCst) {
            self.0.tell(LEAVE, &[]);
        }
    }

    fn failure(&self) -> watch::Receiver<Option<RankError>> {
        self.0.failure.subscribe()
    }
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the other ranks.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank;
        (0..self.peers.len()).filter(move |&other| other != rank)
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Writes all bytes, or fails with the connection or with the run.
    fn write(&self, out: &mut Out, bytes: &[u8]) -> io::Result<()> {
        let rest = std::mem::take(&mut out.rest);
        for mut bytes in [rest.as_slice(), bytes] {
            while !bytes.is_empty() {
                match out.stream.write(bytes) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => bytes = &bytes[written..],
                    Err(error) if is_blocked(&error) => {
                        if self.failure.borrow().is_some() {
                            return Err(error);
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Returns the error of a connection that was closed: the reason that another rank reports, or the loss of its
    /// rank.
    fn closed(&self, rank: usize, error: &io::Error) -> RankError {
        let waited = Instant::now();
        while waited.elapsed() < REPORT && self.failure.borrow().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.lose(rank, format!("its connection was closed ({error})"))
    }

    /// Records the loss of a rank, unless there was a failure before, and returns the first failure.
    fn lose(&self, rank: usize, reason: String) -> RankError {
        let place = self.peers[rank].as_ref().map(|peer| peer.place.clone()).unwrap_or_default();
        self.fail(RankError::Lost { rank, place, reason })
    }

    /// Records a failure, tells it to the other ranks, and ends all operations. Returns the first failure.
    fn fail(&self, error: RankError) -> RankError {
        let mut first = false;
        self.failure.send_if_modified(|failure| {
            first = failure.is_none();
            failure.get_or_insert_with(|| error.clone());
            first
        });
        if first {
            let text = match &error {
                RankError::Lost { rank, place, reason } => format!("L\n{rank}\n{place}\n{reason}"),
                RankError::Ended { rank, place, reason } => format!("E\n{rank}\n{place}\n{reason}"),
                other => format!("E\n{}\n{}\n{other}", self.rank, own_place()),
            };
            self.tell(ABORT, text.as_bytes());
            self.peers
                .iter()
                .flatten()
                .for_each(|peer| drop(peer.stream.shutdown(Shutdown::Write)));
        }
        // A receiver either sees the failure, or waits already.
        drop(self.inbox());
        self.arrived.notify_all();
        self.failure.borrow().clone().unwrap_or(error)
    }

    /// Sends a short message of the connection to every other rank. A connection in use needs no heartbeat, and one that
    /// is blocked gets nothing.
    fn tell(&self, channel: u32, message: &[u8]) {
        let header = header(channel, message.len(), false);
        for peer in self.peers.iter().flatten().filter(|peer| !peer.left.load(Ordering::SeqCst)) {
            let patience = if channel == HEARTBEAT { Duration::ZERO } else { BLOCKED };
            let Some(mut out) = peer.try_out(patience) else { continue };
            let mut bytes = std::mem::take(&mut out.rest);
            bytes.extend_from_slice(&header);
            bytes.extend_from_slice(message);
            // What does not fit into the buffers of the connection is sent before the next message.
            let written = out.stream.write(&bytes).unwrap_or(0);
            let first = HEADER + message.len();
            if written > 0 || bytes.len() > first || channel != HEARTBEAT {
                out.rest = bytes.split_off(written);
            }
        }
    }

    /// Runs the thread of the heartbeats: sends them, and looks for ranks without a sign of life.
    fn beat(&self) {
        let interval = (self.timeout / 20).clamp(Duration::from_millis(20), Duration::from_secs(1));
        // The rest of the time limit is for the end of the process.
        let limit = (self.timeout * 3 / 4).as_millis() as u64;
        let mut before = self.now();
        while self.failure.borrow().is_none() && !self.left.load(Ordering::SeqCst) {
            self.tell(HEARTBEAT, &[]);
            std::thread::sleep(interval);
            let now = self.now();
            let stopped = now.saturating_sub(before) > limit / 2;
            before = now;
            for rank in self.others() {
                let Some(peer) = &self.peers[rank] else { continue };
                if stopped {
                    // This process was stopped itself, and has read nothing meanwhile.
                    peer.heard.store(now, Ordering::SeqCst);
                }
                let silent = now.saturating_sub(peer.heard.load(Ordering::SeqCst));
                if silent > limit && !peer.left.load(Ordering::SeqCst) {
                    let seconds = silent as f64 / 1e3;
                    self.lose(rank, format!("no sign of life for {seconds:.1} s"));
                }
            }
        }
    }

    /// Runs the thread that reads the messages of a rank.
    fn read(&self, from: usize) {
        let Some(peer) = &self.peers[from] else { return };
        peer.heard.store(self.now(), Ordering::SeqCst);
        loop {
            match self.read_piece(from, peer) {
                Ok(()) => {}
                Err(_) if peer.left.load(Ordering::SeqCst) || self.left.load(Ordering::SeqCst) => {
                    return;
                }
                Err(error) => {
                    self.closed(from, &error);
                    return;
                }
            }
        }
    }

    /// Reads a piece of a message, and delivers the message if it is complete.
    fn read_piece(&self, from: usize, peer: &Peer) -> io::Result<()> {
        let mut header = [0; HEADER];
        self.fill(peer, &mut header)?;
        let [c0, c1, c2, c3, l0, l1, l2, l3, more] = header;
        let channel = u32::from_le_bytes([c0, c1, c2, c3]);
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length > PIECE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a piece is too long"));
        }
        let mut piece = vec![0; length];
        self.fill(peer, &mut piece)?;
        match channel {
            HEARTBEAT => {}
            LEAVE => peer.left.store(true, Ordering::SeqCst),
            ABORT => {
                self.fail(reported(&String::from_utf8_lossy(&piece), from));
            }
            _ => self.deliver((from, channel), piece, more == 1)?,
        }
        Ok(())
    }

    /// Fills a buffer. Every part that arrives is a sign of life.
    fn fill(&self, peer: &Peer, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            match (&peer.stream).read(buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    peer.heard.store(self.now(), Ordering::SeqCst);
                    buffer = &mut buffer[read..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn deliver(&self, place: (usize, u32), piece: Vec<u8>, more: bool) -> io::Result<()> {
        let mut inbox = self.inbox();
        let mut message = inbox.incomplete.remove(&place).unwrap_or_default();
        if message.len() + piece.len() > LONGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
        }
        match message.is_empty() {
            true => message = piece,
            false => message.extend_from_slice(&piece),
        }
        if more {
            inbox.incomplete.insert(place, message);
        } else {
            inbox.complete.entry(place).or_default().push_back(message);
            self.arrived.notify_all();
        }
        Ok(())
    }
}

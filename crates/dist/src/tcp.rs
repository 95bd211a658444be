//! Connections over TCP: one between every two ranks, with heartbeats.

mod greeting;
mod join;
mod peer;

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::inbox::Inbox;
use super::message::{
    ABORT, HEADER, HEARTBEAT, LEAVE, PIECE, PieceHeader, STOP, own_place, pieces, report,
    reported_failure,
};
use super::{DistOptions, Launch, Link, RankError};
use join::Joined;
use peer::{BLOCKED, Out, TcpPeer, is_blocked};

/// Time in which other ranks may report why a connection was closed.
const REPORT: Duration = Duration::from_millis(300);

/// Connections of a rank with all others.
#[derive(Debug)]
pub(super) struct Tcp(Arc<TcpShared>);

#[derive(Debug)]
struct TcpShared {
    rank: usize,
    /// Connections by rank; `None` at its own.
    peers: Vec<Option<TcpPeer>>,
    inbox: Inbox,
    /// True when this rank has taken leave.
    left: AtomicBool,
    timeout: Duration,
    start: Instant,
}

/// Returns the error of a rank that has no threads for its connections.
fn not_connected(launch: &Launch, error: &io::Error) -> RankError {
    RankError::Join {
        rank: launch.rank,
        size: launch.size,
        address: "the threads of its connections".to_owned(),
        reason: error.to_string(),
    }
}

impl Tcp {
    /// Connects with all other ranks, and starts a thread for each and one for the heartbeats.
    pub(super) fn join(launch: &Launch, options: &DistOptions) -> Result<Self, RankError> {
        let joined = join::join(launch, options)?;
        Self::start_threads(launch.rank, joined, options)
            .map_err(|error| not_connected(launch, &error))
    }

    fn start_threads(
        rank: usize,
        joined: Vec<Option<Joined>>,
        options: &DistOptions,
    ) -> io::Result<Self> {
        let peers = joined.into_iter().map(|joined| joined.map(TcpPeer::new).transpose());
        let shared = Arc::new(TcpShared {
            rank,
            peers: peers.collect::<io::Result<_>>()?,
            inbox: Inbox::default(),
            left: AtomicBool::new(false),
            timeout: options.timeout,
            start: Instant::now(),
        });
        for rank in shared.other_ranks() {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(format!("rank {rank}")).spawn(move || shared.read(rank))?;
        }
        let beating = Arc::clone(&shared);
        thread::Builder::new().name("heartbeat".to_owned()).spawn(move || beating.beat())?;
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
        let mut out = peer.lock_outgoing();
        for (header, piece) in pieces(channel, message) {
            for bytes in [header.encode().as_slice(), piece] {
                self.0.write(&mut out, bytes).map_err(|error| self.0.closed_error(to, &error))?;
            }
        }
        Ok(())
    }

    fn receive(&self, from: usize, channel: u32) -> Result<Vec<u8>, RankError> {
        self.0.inbox.receive(from, channel)
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
        self.0.inbox.subscribe()
    }

    fn stop_asked(&self) -> watch::Receiver<Option<usize>> {
        self.0.inbox.stop_asked()
    }
}

impl TcpShared {
    /// Returns the other ranks.
    fn other_ranks(&self) -> impl Iterator<Item = usize> + use<> {
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
                        if self.inbox.has_failed() {
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
    fn closed_error(&self, rank: usize, error: &io::Error) -> RankError {
        let waited = Instant::now();
        while waited.elapsed() < REPORT && !self.inbox.has_failed() {
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
        if self.inbox.fail(&error) {
            self.tell(ABORT, report(&error, self.rank).as_bytes());
            self.peers
                .iter()
                .flatten()
                .for_each(|peer| drop(peer.stream.shutdown(Shutdown::Write)));
        }
        self.inbox.wake();
        self.inbox.failure().unwrap_or(error)
    }

    /// Sends a short message of the connection to every other rank. A connection in use needs no heartbeat, and one that
    /// is blocked gets nothing.
    fn tell(&self, channel: u32, message: &[u8]) {
        let header = PieceHeader { channel, length: message.len(), more: false }.encode();
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
        while !self.inbox.has_failed() && !self.left.load(Ordering::SeqCst) {
            self.tell(HEARTBEAT, &[]);
            std::thread::sleep(interval);
            let now = self.now();
            let stopped = now.saturating_sub(before) > limit / 2;
            before = now;
            for rank in self.other_ranks() {
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
                    self.closed_error(from, &error);
                    return;
                }
            }
        }
    }

    /// Reads a piece of a message, and delivers the message if it is complete.
    fn read_piece(&self, from: usize, peer: &TcpPeer) -> io::Result<()> {
        let mut header = [0; HEADER];
        self.fill(peer, &mut header)?;
        let PieceHeader { channel, length, more } = PieceHeader::decode(header);
        if length > PIECE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a piece is too long"));
        }
        let mut piece = vec![0; length];
        self.fill(peer, &mut piece)?;
        match channel {
            HEARTBEAT => {}
            LEAVE => peer.left.store(true, Ordering::SeqCst),
            STOP => self.inbox.stop(from),
            ABORT => {
                self.fail(reported_failure(&String::from_utf8_lossy(&piece), from));
            }
            _ => self.inbox.deliver((from, channel), piece, more)?,
        }
        Ok(())
    }

    /// Fills a buffer. Every part that arrives is a sign of life.
    fn fill(&self, peer: &TcpPeer, mut buffer: &mut [u8]) -> io::Result<()> {
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
}

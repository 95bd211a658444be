//! The thread that calls MPI: sends what others queue, receives, tells signs of life, and ends MPI.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::link::{Mpi, MpiEnd};
use super::world::{MpiTransfer, World};
use crate::RankError;
use crate::message::{
    ABORT, HEADER, HEARTBEAT, LEAVE, PIECE, PieceHeader, STOP, report, reported_failure,
};

/// Time after the last message in which there is no pause.
const BUSY: Duration = Duration::from_micros(200);
/// Longest pause between two looks at MPI.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest time in which the other ranks are told of a failure.
const TELL: Duration = Duration::from_millis(300);
/// Longest time that a process has to end after a failure, before MPI ends it.
const GRACE: Duration = Duration::from_secs(1);

/// All of MPI that a process uses, on one thread.
pub(super) struct Carrier {
    world: World,
    shared: Arc<Mpi>,
    /// Other ranks; that at the own place is not used.
    peers: Vec<MpiPeer>,
    beaten: Instant,
    /// True when the other ranks know that this one takes leave.
    told: bool,
}

/// Another rank.
struct MpiPeer {
    sending: VecDeque<MpiTransfer>,
    receiving: Option<MpiTransfer>,
    /// Time of the last sign of life.
    heard: Instant,
    /// True when the rank has taken leave.
    left: bool,
}

impl Carrier {
    pub(super) fn new(world: World, shared: Arc<Mpi>) -> Self {
        let now = Instant::now();
        let peers = (0..world.size()).map(|_| MpiPeer {
            sending: VecDeque::new(),
            receiving: None,
            heard: now,
            left: false,
        });
        Self { world, shared, peers: peers.collect(), beaten: now, told: false }
    }

    /// Carries messages until all ranks have taken leave, or one has failed.
    pub(super) fn run(mut self) {
        let mut active = Instant::now();
        loop {
            match self.turn() {
                Ok(true) => active = Instant::now(),
                Ok(false) => self.pause(active.elapsed()),
                Err((rank, reason)) => self.lose(rank, reason),
            }
            if self.shared.inbox.has_failed() {
                return self.fail();
            }
            if self.told && self.peers_left() && self.is_sent() {
                self.shared.set_end(MpiEnd::Begun(Instant::now()));
                self.world.finish();
                return self.shared.set_end(MpiEnd::Done);
            }
        }
    }

    /// Carries what there is, and returns true if there was something. An error is that of a rank.
    fn turn(&mut self) -> Result<bool, (usize, String)> {
        let leaving = self.shared.leaving.load(Ordering::SeqCst);
        let mut active = false;
        for (to, bytes) in self.shared.queued() {
            self.send(to, bytes)?;
            active = true;
        }
        if leaving && !self.told {
            self.told = true;
            // The last message to each rank.
            self.tell(LEAVE, &[], |_| true)?;
        }
        for rank in self.others() {
            active |= self.advance(rank).map_err(|reason| (rank, reason))?;
        }
        self.beat()?;
        Ok(active)
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.world.rank();
        (0..self.world.size()).filter(move |&rank| rank != own)
    }

    fn send(&mut self, to: usize, bytes: Vec<u8>) -> Result<(), (usize, String)> {
        let transfer = self.world.send(to, bytes).map_err(|reason| (to, reason))?;
        self.peers[to].sending.push_back(transfer);
        Ok(())
    }

    /// Sends a message of the transport to other ranks.
    fn tell(
        &mut self,
        channel: u32,
        message: &[u8],
        whom: impl Fn(&MpiPeer) -> bool,
    ) -> Result<(), (usize, String)> {
        let header = PieceHeader { channel, length: message.len(), more: false }.encode();
        for rank in self.others() {
            if !whom(&self.peers[rank]) {
                continue;
            }
            self.shared.count(HEADER + message.len());
            self.send(rank, [&header, message].concat())?;
        }
        Ok(())
    }

    /// Looks at the transfers of a rank, and returns true if one has ended or begun.
    fn advance(&mut self, rank: usize) -> Result<bool, String> {
        let peer = &mut self.peers[rank];
        let mut active = false;
        while let Some(first) = peer.sending.front_mut() {
            if !first.is_done()? {
                break;
            }
            self.shared.sent(first.len());
            peer.sending.pop_front();
            active = true;
        }
        loop {
            if peer.receiving.is_none() {
                peer.receiving = self.world.receive(rank)?;
            }
            let Some(transfer) = &mut peer.receiving else { return Ok(active) };
            active = true;
            if !transfer.is_done()? {
                return Ok(active);
            }
            peer.heard = Instant::now();
            let bytes = peer.receiving.take().map(MpiTransfer::into_bytes).unwrap_or_default();
            peer.left |= deliver(&self.shared, rank, bytes)?;
        }
    }

    /// Sends signs of life at intervals, and looks for ranks without one. A rank that is sent something needs none.
    fn beat(&mut self) -> Result<(), (usize, String)> {
        let timeout = self.shared.timeout();
        let interval = (timeout / 20).clamp(Duration::from_millis(20), Duration::from_secs(1));
        // The rest of the time limit is for the end of the process.
        let limit = timeout * 3 / 4;
        let passed = self.beaten.elapsed();
        if passed < interval {
            return Ok(());
        }
        self.beaten = Instant::now();
        if passed > limit / 2 {
            // This process was stopped itself, and has received nothing meanwhile.
            self.peers.iter_mut().for_each(|peer| peer.heard = self.beaten);
        }
        if !self.told {
            // Those that have left wait for this rank, too.
            self.tell(HEARTBEAT, &[], |peer| peer.sending.is_empty())?;
        }
        for rank in self.others() {
            let peer = &self.peers[rank];
            let silent = peer.heard.elapsed();
            if silent > limit && !peer.left {
                return Err((rank, format!("no sign of life for {:.1} s", silent.as_secs_f64())));
            }
        }
        Ok(())
    }

    /// Waits for a message to send, for longer the longer there was nothing.
    fn pause(&self, idle: Duration) {
        if idle < BUSY {
            std::thread::yield_now()
        } else {
            self.shared.wait((idle / 20).min(PAUSE))
        }
    }

    fn peers_left(&self) -> bool {
        self.others().all(|rank| self.peers[rank].left)
    }

    fn is_sent(&self) -> bool {
        self.peers.iter().all(|peer| peer.sending.is_empty())
    }

    fn lose(&self, rank: usize, reason: String) {
        self.shared.fail(&RankError::Lost { rank, place: self.shared.place(rank), reason });
    }

    /// Tells the other ranks of the failure, and ends all processes when this one does, or after a time.
    fn fail(mut self) {
        let failure = self.shared.inbox.failure();
        let text = failure.map(|error| report(&error, self.world.rank())).unwrap_or_default();
        let start = Instant::now();
        let mut unsent = !self.told && self.tell(ABORT, text.as_bytes(), |_| true).is_ok();
        while unsent && start.elapsed() < TELL {
            std::thread::sleep(PAUSE);
            unsent = false;
            for peer in &mut self.peers {
                while let Some(first) = peer.sending.front_mut() {
                    if !first.is_done().unwrap_or(true) {
                        unsent = true;
                        break;
                    }
                    peer.sending.pop_front();
                }
            }
        }
        let grace = GRACE.min(self.shared.timeout() / 8);
        while start.elapsed() < grace && !self.shared.ending.load(Ordering::SeqCst) {
            std::thread::sleep(PAUSE);
        }
        self.world.abort();
    }
}

/// Delivers a piece of a message, and returns true if its rank takes leave.
fn deliver(shared: &Mpi, from: usize, mut bytes: Vec<u8>) -> Result<bool, String> {
    let head = bytes.first_chunk::<HEADER>().copied().ok_or("it sends a piece without a header")?;
    let PieceHeader { channel, length, more } = PieceHeader::decode(head);
    bytes.drain(..HEADER);
    if bytes.len() != length || length > PIECE {
        return Err(format!("it sends a piece of {} bytes as one of {length}", bytes.len()));
    }
    match channel {
        HEARTBEAT => {}
        LEAVE => return Ok(true),
        STOP => shared.inbox.stop(from),
        ABORT => shared.fail(&reported_failure(&String::from_utf8_lossy(&bytes), from)),
        _ => {
            let delivered = shared.inbox.deliver((from, channel), bytes, more);
            delivered.map_err(|error| error.to_string())?;
        }
    }
    Ok(false)
}

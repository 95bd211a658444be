//! Messages as transports carry them: their pieces with headers, and what a transport tells the other ranks itself.

use std::array;

use super::RankError;

/// Channels of a transport itself.
pub(super) const HEARTBEAT: u32 = u32::MAX;
pub(super) const ABORT: u32 = u32::MAX - 1;
pub(super) const LEAVE: u32 = u32::MAX - 2;
pub(super) const STOP: u32 = u32::MAX - 3;
#[cfg(feature = "mpi")]
pub(super) const GREETING: u32 = u32::MAX - 4;
/// Longest piece of a message.
pub(super) const PIECE: usize = 1 << 22;
/// Length of a header: channel, length of the piece, 1 if the message goes on.
pub(super) const HEADER: usize = 9;

/// Header of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PieceHeader {
    pub(super) channel: u32,
    /// Length of the piece.
    pub(super) length: usize,
    /// True if the message goes on.
    pub(super) more: bool,
}

impl PieceHeader {
    pub(super) fn encode(self) -> [u8; HEADER] {
        let [c0, c1, c2, c3] = self.channel.to_le_bytes();
        let [l0, l1, l2, l3] = (self.length as u32).to_le_bytes();
        [c0, c1, c2, c3, l0, l1, l2, l3, u8::from(self.more)]
    }

    pub(super) fn decode([c0, c1, c2, c3, l0, l1, l2, l3, more]: [u8; HEADER]) -> Self {
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        Self { channel: u32::from_le_bytes([c0, c1, c2, c3]), length, more: more == 1 }
    }
}

/// Returns the pieces of a message with their headers; an empty message is one piece.
pub(super) fn pieces(channel: u32, message: &[u8]) -> impl Iterator<Item = (PieceHeader, &[u8])> {
    let count = message.len().div_ceil(PIECE).max(1);
    (0..count).map(move |at| {
        let piece = &message[at * PIECE..message.len().min((at + 1) * PIECE)];
        (PieceHeader { channel, length: piece.len(), more: at + 1 < count }, piece)
    })
}

/// Returns the report of a failure to the other ranks.
pub(super) fn report(error: &RankError, own_rank: usize) -> String {
    match error {
        RankError::Lost { rank, place, reason } => format!("L\n{rank}\n{place}\n{reason}"),
        RankError::Ended { rank, place, reason } => format!("E\n{rank}\n{place}\n{reason}"),
        other => format!("E\n{own_rank}\n{}\n{other}", own_place()),
    }
}

/// Returns the failure that a rank reports.
pub(super) fn reported_failure(text: &str, from: usize) -> RankError {
    let mut lines = text.splitn(4, '\n').map(str::to_owned);
    let [kind, rank, place, reason] = array::from_fn(|_| lines.next().unwrap_or_default());
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

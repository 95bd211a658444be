//! Limits of a listener.

use std::time::Duration;

/// Bounds on the connections of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of concurrent connections; further ones wait to be accepted.
    pub connections: usize,
    /// Maximum number of concurrent connections of one address; further ones are closed. Programs of this machine
    /// share an address, so loopback addresses are exempt.
    pub connections_per_peer: usize,
    /// Timeout for the head of a request. A connection without a request is closed after the same time.
    pub head: Duration,
    /// Maximum size of the head of a request in bytes. The connection is read a part at a time, so that a head of up to
    /// twice this size may pass.
    pub head_bytes: usize,
    /// Time without any progress after which a client that does not read its answer is dropped.
    pub write: Duration,
    /// Maximum time that a stop waits for running requests.
    pub drain: Duration,
    /// A client that closes its sending half still gets its answer. Otherwise that cancels the running request, as a closed
    /// connection does: the two cannot be told apart.
    pub half_close: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_per_peer: 64,
            head: Duration::from_secs(10),
            head_bytes: 64 << 10,
            write: Duration::from_secs(60),
            drain: Duration::from_secs(30),
            half_close: false,
        }
    }
}

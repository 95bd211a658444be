//! Gate that the turns of an episode pass before they are sampled.

use futures::future::BoxFuture;

use crate::trajectory::{Fault, Seat, TurnPath};

/// Gate that the turns of one episode pass before they are sampled, such as when the weights exist that play them.
pub trait TurnGate: Send + Sync {
    /// Waits until the turn of a seat may be sampled.
    ///
    /// # Errors
    ///
    /// If it never may.
    fn pass<'a>(&'a self, seat: &'a Seat, path: &'a TurnPath) -> BoxFuture<'a, Result<(), Fault>>;
}

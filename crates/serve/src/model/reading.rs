//! Reading of requests: parsing, rendering and encoding, in bounded memory.
//!
//! Encoding takes some hundred bytes for each byte of a text. So the texts that are read at once are bounded in bytes, and a
//! text that has more bytes than any that fits the context is refused before it is encoded.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::refusal::Refusal;
use maverl::runtime::giving_back;

/// Maximum size in bytes of a request that is read at once with any others.
pub(super) const SMALL: usize = 16 << 10;
/// Bytes of larger requests that are read at once. One that is larger is read alone.
const AT_ONCE: usize = 4 << 20;
/// Size in bytes of a request whose memory is given back to the system.
const LARGE: usize = 1 << 20;

/// Bound on the requests that are read at once.
pub(super) struct ReplyReading(Arc<Semaphore>);

impl Default for ReplyReading {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl ReplyReading {
    /// Waits until a request of so many bytes may be read.
    pub(super) async fn begin(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        if bytes <= SMALL {
            return None;
        }
        let permits = bytes.min(AT_ONCE) as u32;
        // The semaphore is never closed.
        Arc::clone(&self.0).acquire_many_owned(permits).await.ok()
    }
}

/// Reads a request of so many bytes on a thread for it.
pub(super) async fn aside<T: Send + 'static>(
    bytes: usize,
    read: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let read =
        tokio::task::spawn_blocking(move || if bytes > LARGE { giving_back(read) } else { read() });
    read.await.unwrap_or_else(|error| Err(Refusal::internal(error.to_string())))
}

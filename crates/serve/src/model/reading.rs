//! Reading of requests: parsing, rendering and encoding, in bounded memory.
//!
//! Encoding takes some hundred bytes for each byte of a text. So the texts that are read at once are bounded in bytes, and a
//! text that has more bytes than any that fits the context is refused before it is encoded.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Entry, ModelServer};
use crate::body::Received;
use crate::openai::{Fields, too_many_bytes, too_many_tokens};
use crate::queue::Admitted;
use crate::refusal::Refusal;
use maverl::runtime::giving_back;

/// Maximum size in bytes of a request that is read at once with any others.
const SMALL: usize = 16 << 10;
/// Bytes of larger requests that are read at once. One that is larger is read alone.
const AT_ONCE: usize = 4 << 20;
/// Size in bytes of a request whose memory is given back to the system.
const LARGE: usize = 1 << 20;

/// Bound on the requests that are read at once.
pub(super) struct Reading(Arc<Semaphore>);

impl Default for Reading {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl Reading {
    /// Waits until a request of so many bytes may be read.
    async fn begin(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        if bytes <= SMALL {
            return None;
        }
        let permits = bytes.min(AT_ONCE) as u32;
        // The semaphore is never closed.
        Arc::clone(&self.0).acquire_many_owned(permits).await.ok()
    }
}

/// An admitted request to a model of the catalog, whose fields were not read yet.
pub(super) struct Asked {
    pub(super) fields: Fields,
    pub(super) entry: Arc<Entry>,
    pub(super) admitted: Admitted,
    reading: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl Asked {
    /// Parses a request that was admitted, and finds its model.
    pub(super) async fn parse(
        server: &ModelServer,
        body: Received,
        admitted: Admitted,
    ) -> Result<Self, Refusal> {
        let bytes = body.len();
        let reading = server.reading.begin(bytes).await;
        let mut fields = if bytes > SMALL {
            aside(bytes, move || Fields::parse(&body)).await?
        } else {
            Fields::parse(&body)?
        };
        let name = fields.text("model")?;
        let entry = server.catalog()?.find(name.as_deref())?;
        Ok(Self { fields, entry, admitted, reading, bytes })
    }

    /// Reads the fields on a thread for it: templates and tokenizers compute, and other requests go on in the meantime.
    pub(super) async fn read<T: Send + 'static>(
        self,
        read: impl FnOnce(Arc<Entry>, Fields) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<(T, Admitted), Refusal> {
        let Self { fields, entry, admitted, reading, bytes } = self;
        let read = aside(bytes, move || {
            // Also held if the client leaves: the thread goes on.
            let _reading = reading;
            read(entry, fields)
        });
        Ok((read.await?, admitted))
    }
}

/// Reads a request of so many bytes on a thread for it.
async fn aside<T: Send + 'static>(
    bytes: usize,
    read: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let read =
        tokio::task::spawn_blocking(move || if bytes > LARGE { giving_back(read) } else { read() });
    read.await.unwrap_or_else(|error| Err(Refusal::internal(error.to_string())))
}

impl Entry {
    /// Fails for a text with more bytes than any that fits the context.
    pub(super) fn bound_text(&self, text: &str) -> Result<(), Refusal> {
        let (context, bytes) = (self.context(), text.len());
        let most = self.tokenizer().most_bytes(context);
        if bytes > most { Err(too_many_bytes(bytes, most, context)) } else { Ok(()) }
    }

    /// Fails for more ids than the context has.
    pub(super) fn bound_ids(&self, ids: &[u32]) -> Result<(), Refusal> {
        let (context, tokens) = (self.context(), ids.len());
        if tokens > context { Err(too_many_tokens(tokens, 0, context)) } else { Ok(()) }
    }
}

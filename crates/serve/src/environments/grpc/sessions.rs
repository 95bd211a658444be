//! Sessions by their ids, each with a lease that every request extends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tonic::Status;

use super::session::{GrpcSession, unknown_session};

/// Number of bytes of a session's id.
const ID_BYTES: usize = 16;

/// Open sessions. Clones share them.
#[derive(Clone, Default)]
pub(super) struct GrpcSessions(Arc<Mutex<BTreeMap<String, Arc<Slot>>>>);

/// A session with its lease. A message locks it from its beginning to its end.
pub(super) struct Slot {
    pub(super) session: tokio::sync::Mutex<GrpcSession>,
    lease: Duration,
    ends: Mutex<Instant>,
}

impl Slot {
    fn new(session: GrpcSession, lease: Duration) -> Self {
        Self {
            session: tokio::sync::Mutex::new(session),
            lease,
            ends: Mutex::new(Instant::now() + lease),
        }
    }

    /// Begins the lease anew.
    pub(super) fn renew(&self) {
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + self.lease;
    }

    /// Returns the time without a message after which the session is closed.
    pub(super) fn lease(&self) -> Duration {
        self.lease
    }

    fn ends(&self) -> Instant {
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GrpcSessions {
    /// Returns the session of an id, whose lease begins anew.
    pub(super) fn find(&self, id: &str) -> Result<Arc<Slot>, Status> {
        let slot = self.table().get(id).cloned().ok_or_else(|| unknown_session(id))?;
        slot.renew();
        Ok(slot)
    }

    /// Returns the session of an id. If there is none, begins the one that `new` returns.
    pub(super) fn enter(
        &self,
        id: &str,
        lease: Duration,
        new: impl FnOnce() -> Result<GrpcSession, Status>,
    ) -> Result<Arc<Slot>, Status> {
        let mut table = self.table();
        if let Some(slot) = table.get(id) {
            slot.renew();
            return Ok(Arc::clone(slot));
        }
        let slot = Arc::new(Slot::new(new()?, lease));
        table.insert(id.to_owned(), Arc::clone(&slot));
        drop(table);
        tokio::spawn(self.clone().expire(id.to_owned(), Arc::downgrade(&slot)));
        Ok(slot)
    }

    /// Removes the session of an id, and returns it.
    pub(super) fn remove(&self, id: &str) -> Option<Arc<Slot>> {
        self.table().remove(id)
    }

    /// Removes a session. Another one of the same id stays.
    pub(super) fn leave(&self, id: &str, slot: &Arc<Slot>) {
        let mut table = self.table();
        if table.get(id).is_some_and(|found| Arc::ptr_eq(found, slot)) {
            table.remove(id);
        }
    }

    /// Closes a session when its lease ends, unless a message of it is under way.
    async fn expire(self, id: String, slot: Weak<Slot>) {
        while let Some(ends) = slot.upgrade().map(|slot| slot.ends()) {
            tokio::time::sleep_until(ends).await;
            let Some(slot) = slot.upgrade().filter(|slot| slot.ends() <= Instant::now()) else {
                continue;
            };
            let Ok(mut session) = slot.session.try_lock() else {
                slot.renew();
                continue;
            };
            self.leave(&id, &slot);
            // The client is gone; the log has the failure.
            let _ = session.close().await;
            return;
        }
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Slot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the id of the session that a client opens with a request. Nobody without the secret can guess it.
pub(super) fn id_of(secret: &str, client: usize, request: &str) -> String {
    let digest = Sha256::digest(format!("{secret}\n{client}\n{request}").as_bytes());
    digest[..ID_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
}

//! Episodes that are open, by their keys.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use axum::http::StatusCode;
use tokio::sync::mpsc;

use super::call::digest;
use super::course::EpisodeCommand;
use super::history::Hash;
use crate::key::new_key;
use crate::openai::new_id;
use crate::refusal::Refusal;

/// Number of closed episodes that are told from wrong keys.
const CLOSED: usize = 4096;

/// Episodes of a run.
#[derive(Default)]
pub(super) struct Episodes(Mutex<EpisodeTable>);

#[derive(Default)]
struct EpisodeTable {
    open: BTreeMap<Hash, Arc<Open>>,
    /// Keys of closed episodes, with the digest of the request that finished each.
    closed: VecDeque<(Hash, Option<Hash>)>,
}

/// An episode that is open.
pub(super) struct Open {
    pub(super) id: String,
    pub(super) commands: mpsc::Sender<EpisodeCommand>,
    /// Digest of the request that finished it.
    pub(super) finished: OnceLock<Hash>,
}

/// An open episode with its key, until it is dropped.
pub(super) struct Entered<'e> {
    episodes: &'e Episodes,
    pub(super) open: Arc<Open>,
    /// Key of the episode. It is in no file and no log.
    pub(super) key: String,
}

/// An episode that a key belongs to.
pub(super) enum FoundEpisode {
    Open(Arc<Open>),
    /// It was closed, by a request with this digest if it was finished.
    Closed(Option<Hash>),
}

impl Episodes {
    /// Opens an episode, with a key of 32 random bytes of the system.
    pub(super) fn enter(
        &self,
        commands: mpsc::Sender<EpisodeCommand>,
    ) -> Result<Entered<'_>, String> {
        let key =
            new_key().map_err(|error| format!("the system has no random numbers: {error}"))?;
        let open = Open { id: new_id("episode"), commands, finished: OnceLock::new() };
        let open = Arc::new(open);
        self.table().open.insert(digest(&[key.as_bytes()]), Arc::clone(&open));
        Ok(Entered { episodes: self, open, key })
    }

    /// Returns the episode of a key.
    pub(super) fn find(&self, key: Option<&str>) -> Result<FoundEpisode, Refusal> {
        let digest = key.map(|key| digest(&[key.as_bytes()]));
        let table = self.table();
        if let Some(open) = digest.and_then(|digest| table.open.get(&digest)) {
            return Ok(FoundEpisode::Open(Arc::clone(open)));
        }
        let closed = table.closed.iter().find(|(key, _)| Some(*key) == digest);
        if let Some((_, finished)) = closed {
            return Ok(FoundEpisode::Closed(*finished));
        }
        let message =
            "the request has no key of an open episode; send it as `Authorization: Bearer KEY`";
        Err(Refusal::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message))
    }

    /// Returns the open episode with an id.
    pub(super) fn of_id(&self, id: &str) -> Option<Arc<Open>> {
        self.table().open.values().find(|open| open.id == id).cloned()
    }

    /// Returns the number of open episodes.
    pub(super) fn count(&self) -> usize {
        self.table().open.len()
    }

    fn table(&self) -> MutexGuard<'_, EpisodeTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let key = digest(&[self.key.as_bytes()]);
        let mut table = self.episodes.table();
        table.open.remove(&key);
        table.closed.push_back((key, self.open.finished.get().copied()));
        if table.closed.len() > CLOSED {
            table.closed.pop_front();
        }
    }
}

/// Returns the refusal of a request to an episode that has ended.
pub(super) fn episode_closed() -> Refusal {
    let message = "the episode has ended";
    let refusal = Refusal::new(StatusCode::CONFLICT, "episode_closed", message);
    Refusal { retry: Some(false), ..refusal }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_key_is_dead_with_its_episode() {
        let episodes = Episodes::default();
        let enter = || episodes.enter(mpsc::channel(1).0).unwrap();
        let (one, other) = (enter(), enter());
        assert!(one.key != other.key && one.key.len() == 67 && episodes.count() == 2);
        let id = |key: &str| match episodes.find(Some(key)).unwrap() {
            FoundEpisode::Open(open) => Some(open.id.clone()),
            FoundEpisode::Closed(_) => None,
        };
        assert_eq!(id(&one.key), Some(one.open.id.clone()));
        let key = one.key.clone();
        drop(one);
        assert_eq!((id(&key), id(&other.key)), (None, Some(other.open.id.clone())));
        for wrong in [None, Some(""), Some("mv-0")] {
            assert_eq!(episodes.find(wrong).err().unwrap().status, StatusCode::UNAUTHORIZED);
        }
    }
}

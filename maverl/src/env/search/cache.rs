//! LRU cache of search results.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use lru::LruCache;

/// Maximum length in bytes of a cached query.
const LONGEST: usize = 4 << 10;

/// Results of recent queries, keyed by query and number of documents.
pub(super) struct QueryCache<T>(Option<Mutex<LruCache<(usize, String), T>>>);

impl<T: Clone> QueryCache<T> {
    /// Creates a cache for a number of queries; 0 disables it.
    pub(super) fn new(queries: usize) -> Self {
        Self(NonZeroUsize::new(queries).map(|size| {
            // A cache of a fixed size would allocate its whole capacity at once.
            let mut cache = LruCache::unbounded();
            cache.resize(size);
            Mutex::new(cache)
        }))
    }

    pub(super) fn get(&self, query: &str, k: usize) -> Option<T> {
        let mut cache = self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(&(k, query.to_owned())).cloned()
    }

    pub(super) fn put_result(&self, query: &str, k: usize, found: T) {
        if let Some(cache) = self.0.as_ref().filter(|_| query.len() <= LONGEST) {
            let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.put((k, query.to_owned()), found);
        }
    }
}

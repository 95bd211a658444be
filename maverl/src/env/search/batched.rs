//! Batched search for concurrent callers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::cache::QueryCache;
use super::index::{FoundDocument, Index};
use super::ranked::RankedDocument;
use crate::IntoMap;
use crate::env::EnvError;

/// Answers the queries of concurrent callers from one index.
///
/// Queries that arrive during a search wait for it, and are then answered in one batch. A caller with many queries has at most 64 of
/// them in a batch, so other callers do not wait for all of them. Results of recent queries are cached.
pub struct BatchedSearch {
    cached: Arc<CachedIndex>,
    waiting: Mutex<Vec<QueuedQueries>>,
    /// Lock of the caller that answers all pending queries.
    turn: tokio::sync::Mutex<()>,
}

struct CachedIndex {
    index: Index,
    kept: QueryCache<FoundDocuments>,
}

/// Number of queries of a caller in a batch, and between two checks for dropped callers.
const AT_ONCE: usize = 64;

/// Result of one query.
type FoundDocuments = Arc<[RankedDocument]>;

/// Queries for the best `k` documents, and the channel of their caller.
struct QueuedQueries {
    queries: Vec<String>,
    k: usize,
    answer: oneshot::Sender<Result<Vec<FoundDocuments>, EnvError>>,
}

impl BatchedSearch {
    /// Creates a batched search over an index that caches the results of the last `cache` queries.
    pub fn new(index: Index, cache: usize) -> Self {
        let cached = Arc::new(CachedIndex { index, kept: QueryCache::new(cache) });
        Self { cached, waiting: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Returns the index.
    pub fn index(&self) -> &Index {
        &self.cached.index
    }

    /// Returns the best `k` documents for each query, as in [`Index::search`].
    ///
    /// # Errors
    ///
    /// If the index fails.
    pub async fn search<Q: AsRef<str>>(
        &self,
        queries: &[Q],
        k: usize,
    ) -> Result<Vec<Vec<FoundDocument<'_>>>, EnvError> {
        let mut known: Vec<Option<FoundDocuments>> =
            queries.iter().map(|query| self.cached.kept.get(query.as_ref(), k)).collect();
        let new = queries.iter().zip(&known).filter(|(_, known)| known.is_none());
        let new: Vec<String> = new.map(|(query, _)| query.as_ref().to_owned()).collect();
        if !new.is_empty() {
            let mut answers = Vec::with_capacity(new.len());
            for part in new.chunks(AT_ONCE) {
                answers.extend(self.ask(part.to_vec(), k).await?);
            }
            let unknown = known.iter_mut().filter(|known| known.is_none());
            unknown.zip(answers).for_each(|(unknown, found)| *unknown = Some(found));
        }
        Ok(known.iter().flatten().map(|found| self.index().hits(found)).collect())
    }

    /// Waits until these queries are answered, or until this caller holds the lock and answers all pending ones.
    async fn ask(&self, queries: Vec<String>, k: usize) -> Result<Vec<FoundDocuments>, EnvError> {
        let (answer, mut answered) = oneshot::channel();
        self.waiting().push(QueuedQueries { queries, k, answer });
        let found = tokio::select! {
            biased;
            found = &mut answered => found,
            _turn = self.turn.lock() => {
                let (cached, asks) = (Arc::clone(&self.cached), std::mem::take(&mut *self.waiting()));
                // On a blocking thread, so that no other task is delayed. If the search panics, no caller gets an
                // answer.
                let _ = tokio::task::spawn_blocking(move || cached.answer(asks)).await;
                answered.await
            }
        };
        found.map_err(|_| EnvError::new("the index broke down"))?
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<QueuedQueries>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedIndex {
    /// Answers all callers, grouped by number of documents.
    fn answer(&self, asks: Vec<QueuedQueries>) {
        let mut by_k: BTreeMap<usize, Vec<QueuedQueries>> = BTreeMap::new();
        for ask in asks {
            by_k.entry(ask.k).or_default().push(ask);
        }
        by_k.into_iter().for_each(|(k, asks)| self.batch(k, asks));
    }

    /// Answers the callers for `k` documents. Each query is searched once, if any caller still waits.
    fn batch(&self, k: usize, asks: Vec<QueuedQueries>) {
        let queries = asks.iter().flat_map(|ask| &ask.queries).map(String::as_str);
        let queries: Vec<&str> = queries.collect::<BTreeSet<_>>().into_iter().collect();
        let parts = queries.chunks(AT_ONCE);
        let parts = parts.take_while(|_| asks.iter().any(|ask| !ask.answer.is_closed()));
        let found: Result<Vec<_>, EnvError> =
            parts.map(|part| self.index.rank_queries(part, k)).collect();
        let found: Vec<FoundDocuments> = match found {
            Ok(found) => found.into_iter().flatten().map(Arc::from).collect(),
            // A caller with a failing query fails alone.
            Err(_) if asks.len() > 1 => {
                return asks.into_iter().for_each(|ask| self.batch(k, vec![ask]));
            }
            Err(error) => {
                // Dropped callers need no answer, here and below.
                return asks.into_iter().for_each(|ask| drop(ask.answer.send(Err(error.clone()))));
            }
        };
        // Queries of dropped callers are missing.
        let found: BTreeMap<&str, FoundDocuments> = queries.into_iter().zip(found).into_map();
        for (query, found) in &found {
            self.kept.put_result(query, k, Arc::clone(found));
        }
        let answers = asks.iter().map(|QueuedQueries { queries, .. }| -> Vec<FoundDocuments> {
            queries.iter().filter_map(|query| found.get(query.as_str())).map(Arc::clone).collect()
        });
        let answers: Vec<Vec<FoundDocuments>> = answers.collect();
        for (ask, answer) in asks.into_iter().zip(answers) {
            let _ = ask.answer.send(Ok(answer));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::future::join_all;

    use super::*;
    use crate::builtin::facts;

    #[tokio::test]
    async fn who_asks_among_many_gets_what_it_would_get_alone() {
        let titles: Vec<String> = facts::corpus().into_iter().map(|d| d.title).take(60).collect();
        let index = Index::new(facts::corpus()).unwrap();
        for cache in [0, 7, 1000] {
            let batched = BatchedSearch::new(Index::new(facts::corpus()).unwrap(), cache);
            for _ in 0..2 {
                let asks = titles.chunks(3).cycle().take(50).enumerate();
                let all = asks.map(async |(i, queries)| {
                    let k = 1 + i % 4;
                    assert_eq!(batched.search(queries, k).await, index.search(queries, k));
                });
                join_all(all).await;
            }
            let room = batched.waiting().len();
            assert_eq!(room, 0, "nobody is forgotten");
        }
    }

    #[tokio::test]
    async fn a_caller_of_one_query_waits_for_a_part_of_a_large_request() {
        let batched = BatchedSearch::new(Index::new(facts::corpus()).unwrap(), 0);
        let titles: Vec<String> = facts::corpus().into_iter().map(|d| d.title).take(400).collect();
        let turn = batched.turn.lock().await;
        let mut large = Box::pin(batched.search(&titles, 3));
        assert!(futures::poll!(&mut large).is_pending());
        assert_eq!(batched.waiting()[0].queries.len(), AT_ONCE);
        let mut small = Box::pin(batched.search(&["city"], 3));
        assert!(futures::poll!(&mut small).is_pending());
        drop(turn);
        // The first part of the large request answers both.
        let both = futures::future::select(large, small).await;
        let futures::future::Either::Right((found, large)) = both else {
            panic!("the large request was answered first");
        };
        assert_eq!(found.unwrap()[0].len(), 3);
        assert_eq!(large.await.unwrap().len(), 400);
    }

    #[tokio::test]
    async fn who_leaves_holds_up_nobody() {
        let batched = BatchedSearch::new(Index::new(facts::corpus()).unwrap(), 0);
        {
            let turn = batched.turn.lock().await;
            let mut left = Box::pin(batched.search(&["city"], 3));
            assert!(futures::poll!(&mut left).is_pending());
            drop(left);
            drop(turn);
        }
        assert_eq!(batched.waiting().len(), 1);
        assert_eq!(batched.search(&["city"], 3).await.unwrap()[0].len(), 3);
        assert_eq!(batched.waiting().len(), 0);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_is_not_searched_for() {
        let batched = BatchedSearch::new(Index::new(facts::corpus()).unwrap(), 10);
        let titles: Vec<String> = facts::corpus().into_iter().map(|d| d.title).take(300).collect();
        let (answer, left) = oneshot::channel();
        drop(left);
        batched.cached.answer(vec![QueuedQueries { queries: titles.clone(), k: 3, answer }]);
        assert!(titles.iter().all(|title| batched.cached.kept.get(title, 3).is_none()));
        // As long as one caller waits, all queries are answered.
        let ((gone, left), (waits, mut answered)) = (oneshot::channel(), oneshot::channel());
        drop(left);
        let ask =
            |answer, queries: &[String]| QueuedQueries { queries: queries.to_vec(), k: 3, answer };
        batched.cached.answer(vec![ask(gone, &titles[..200]), ask(waits, &titles[200..])]);
        assert_eq!(answered.try_recv().unwrap().unwrap().len(), 100);
    }
}

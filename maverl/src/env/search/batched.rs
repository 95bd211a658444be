//! Where the queries of many askers are answered together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::cache::QueryCache;
use super::index::{Hit, Index, Ranked};
use crate::env::EnvError;

/// Answers the queries of many askers from one index.
///
/// Queries that come while others are answered wait for them, and are answered in one batch then. What was found for the
/// last queries is kept for when they are asked again.
pub struct BatchedSearch {
    cached: Arc<CachedIndex>,
    waiting: Mutex<Vec<Ask>>,
    /// Held by who answers all that wait.
    turn: tokio::sync::Mutex<()>,
}

struct CachedIndex {
    index: Index,
    kept: QueryCache<Found>,
}

/// Queries that are searched for between two looks at who still waits.
const AT_ONCE: usize = 64;

/// What was found for one query.
type Found = Arc<[Ranked]>;

/// Queries for the best `k` documents, and who waits for them.
struct Ask {
    queries: Vec<String>,
    k: usize,
    answer: oneshot::Sender<Result<Vec<Found>, EnvError>>,
}

impl BatchedSearch {
    /// A batched in front of an index, which keeps what was found for the last `cache` queries.
    pub fn new(index: Index, cache: usize) -> Self {
        let cached = Arc::new(CachedIndex { index, kept: QueryCache::new(cache) });
        Self { cached, waiting: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// The index behind it.
    pub fn index(&self) -> &Index {
        &self.cached.index
    }

    /// The best `k` documents for each query, as [`Index::search`] finds them.
    ///
    /// # Errors
    ///
    /// If the index fails.
    pub async fn search<Q: AsRef<str>>(
        &self,
        queries: &[Q],
        k: usize,
    ) -> Result<Vec<Vec<Hit<'_>>>, EnvError> {
        let queries = || queries.iter().map(AsRef::<str>::as_ref);
        let mut known: Vec<Option<Found>> =
            queries().map(|query| self.cached.kept.get(query, k)).collect();
        let new = || queries().zip(&known).filter(|(_, known)| known.is_none());
        let new: Vec<String> = new().map(|(query, _)| query.to_owned()).collect();
        if !new.is_empty() {
            let unknown = known.iter_mut().filter(|known| known.is_none());
            for (unknown, found) in unknown.zip(self.ask(new, k).await?) {
                *unknown = Some(found);
            }
        }
        let hits = |found: Found| found.iter().map(|ranked| self.index().hit(*ranked)).collect();
        Ok(known.into_iter().flatten().map(hits).collect())
    }

    /// Waits until these queries are answered, or until it is the own turn to answer all that wait.
    async fn ask(&self, queries: Vec<String>, k: usize) -> Result<Vec<Found>, EnvError> {
        let (answer, mut answered) = oneshot::channel();
        self.waiting().push(Ask { queries, k, answer });
        let broken = |_| EnvError::new("the index broke down");
        tokio::select! {
            biased;
            found = &mut answered => return found.map_err(broken)?,
            _turn = self.turn.lock() => {
                let (cached, asks) = (Arc::clone(&self.cached), std::mem::take(&mut *self.waiting()));
                // Where it holds up no other task. One that panics answers nobody.
                let _ = tokio::task::spawn_blocking(move || cached.answer(asks)).await;
            }
        }
        answered.await.map_err(broken)?
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Ask>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedIndex {
    /// Answers all, those for as many documents together.
    fn answer(&self, asks: Vec<Ask>) {
        let mut by_k: BTreeMap<usize, Vec<Ask>> = BTreeMap::new();
        for ask in asks {
            by_k.entry(ask.k).or_default().push(ask);
        }
        by_k.into_iter().for_each(|(k, asks)| self.batch(k, asks));
    }

    /// Answers those for `k` documents; each query is searched once, as long as somebody waits.
    fn batch(&self, k: usize, asks: Vec<Ask>) {
        let queries = asks.iter().flat_map(|ask| &ask.queries).map(String::as_str);
        let queries: Vec<&str> = queries.collect::<BTreeSet<_>>().into_iter().collect();
        let waits = || asks.iter().any(|ask| !ask.answer.is_closed());
        let parts = queries.chunks(AT_ONCE).take_while(|_| waits());
        let found: Result<Vec<_>, EnvError> =
            parts.map(|part| self.index.ranked(part, k)).collect();
        let found: Vec<Found> = match found {
            Ok(found) => found.into_iter().flatten().map(Arc::from).collect(),
            // Who asked something that cannot be answered is alone with it.
            Err(_) if asks.len() > 1 => {
                return asks.into_iter().for_each(|ask| self.batch(k, vec![ask]));
            }
            Err(error) => {
                // Who no longer waits needs no answer, here and below.
                return asks.into_iter().for_each(|ask| drop(ask.answer.send(Err(error.clone()))));
            }
        };
        // Where nobody waits any more, there may be fewer.
        let found: BTreeMap<&str, Found> = queries.into_iter().zip(found).collect();
        for (query, found) in &found {
            self.kept.put(query, k, Arc::clone(found));
        }
        let answers = asks.iter().map(|Ask { queries, .. }| -> Vec<Found> {
            queries.iter().filter_map(|query| found.get(query.as_str())).map(Arc::clone).collect()
        });
        let answers: Vec<Vec<Found>> = answers.collect();
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
        batched.cached.answer(vec![Ask { queries: titles.clone(), k: 3, answer }]);
        assert!(titles.iter().all(|title| batched.cached.kept.get(title, 3).is_none()));
        // Beside somebody who waits, nobody's queries are left out.
        let ((gone, left), (waits, mut answered)) = (oneshot::channel(), oneshot::channel());
        drop(left);
        let ask = |answer, queries: &[String]| Ask { queries: queries.to_vec(), k: 3, answer };
        batched.cached.answer(vec![ask(gone, &titles[..200]), ask(waits, &titles[200..])]);
        assert_eq!(answered.try_recv().unwrap().unwrap().len(), 100);
    }
}

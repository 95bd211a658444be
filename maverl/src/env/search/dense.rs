//! Documents ranked by what they mean: the cosine between the embeddings of a document and of a query.

mod encoder;
mod exact;
mod hnsw;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;
use serde::{Deserialize, Serialize};

pub use encoder::{Encoder, Pooling};
use exact::Exact;
use hnsw::Hnsw;

use super::index::Ranked;
use crate::env::EnvError;
use crate::world::Document;

/// How the nearest documents are found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Neighbors {
    /// By looking at every document.
    #[default]
    Exact,
    /// By walking a graph (HNSW), which may miss some; for large corpora.
    Hnsw,
}

/// What is embedded, and how the nearest are found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dense {
    /// Before each query, as `query: `.
    pub query_prefix: String,
    /// Before each document, as `passage: `.
    pub document_prefix: String,
    /// How the nearest documents are found.
    pub neighbors: Neighbors,
    /// Queries whose embeddings are kept.
    pub cache: usize,
}

/// Embedded documents.
pub(super) struct Meaning {
    encoder: Encoder,
    prefix: String,
    space: Space,
    /// Embeddings of the last queries, by their texts.
    cache: Option<Mutex<LruCache<String, Arc<[f32]>>>>,
}

enum Space {
    Exact(Exact),
    Hnsw(Hnsw),
}

impl Meaning {
    /// Embeds documents.
    pub(super) fn new(
        documents: &[Document],
        encoder: Encoder,
        dense: &Dense,
    ) -> Result<Self, EnvError> {
        let Dense { query_prefix, document_prefix, neighbors, cache } = dense;
        let text = |document: &Document| {
            let Document { title, text, .. } = document;
            let gap = if title.is_empty() { "" } else { "\n" };
            format!("{document_prefix}{title}{gap}{text}")
        };
        let texts: Vec<String> = documents.iter().map(text).collect();
        let embeddings = encoder.encode(&texts)?;
        let space = match neighbors {
            Neighbors::Exact => Space::Exact(Exact::new(&embeddings, encoder.width())),
            Neighbors::Hnsw => Space::Hnsw(Hnsw::new(embeddings, encoder.width())),
        };
        // One of a fixed size would take all of its room at once.
        let kept = |size| {
            let mut kept = LruCache::unbounded();
            kept.resize(size);
            Mutex::new(kept)
        };
        let cache = NonZeroUsize::new(*cache).map(kept);
        Ok(Self { encoder, prefix: query_prefix.clone(), space, cache })
    }

    /// The `k` documents nearest to each query, nearest first.
    pub(super) fn search(&self, queries: &[&str], k: usize) -> Result<Vec<Vec<Ranked>>, EnvError> {
        let embeddings = self.embeddings(queries)?;
        Ok(match &self.space {
            Space::Exact(exact) => exact.search(&embeddings, k),
            Space::Hnsw(graph) => graph.search(&embeddings, k),
        })
    }

    /// The embeddings `[queries, width]`. Those that are not kept are computed in one batch, each once.
    fn embeddings(&self, queries: &[&str]) -> Result<Vec<f32>, EnvError> {
        let mut known: Vec<Option<Arc<[f32]>>> = queries.iter().map(|q| self.kept(q)).collect();
        let unknown = queries.iter().zip(&known).filter(|(_, known)| known.is_none());
        let new: Vec<&str> =
            unknown.map(|(query, _)| *query).collect::<BTreeSet<_>>().into_iter().collect();
        let texts: Vec<String> =
            new.iter().map(|query| format!("{}{query}", self.prefix)).collect();
        let encoded = self.encoder.encode(&texts)?;
        let encoded: Vec<Arc<[f32]>> =
            encoded.chunks_exact(self.encoder.width()).map(Arc::from).collect();
        for (query, known) in queries.iter().zip(&mut known) {
            if let Ok(place) = new.binary_search(query) {
                *known = Some(Arc::clone(&encoded[place]));
            }
        }
        if let Some(cache) = &self.cache {
            let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
            for (query, embedding) in new.into_iter().zip(encoded) {
                cache.put(query.to_owned(), embedding);
            }
        }
        Ok(known.into_iter().flatten().flat_map(|embedding| embedding.to_vec()).collect())
    }

    fn kept(&self, query: &str) -> Option<Arc<[f32]>> {
        let mut cache = self.cache.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(query).map(Arc::clone)
    }
}

/// Random unit vectors `[n, width]`.
#[cfg(test)]
fn random(n: usize, width: usize, seed: u64) -> Vec<f32> {
    let mut draw = crate::draw::Draw::new(seed);
    let mut uniform = || (draw.bits() >> 40) as f32 / (1_u64 << 24) as f32 - 0.5;
    let mut vectors: Vec<f32> = (0..n * width).map(|_| uniform()).collect();
    vectors.chunks_exact_mut(width).for_each(encoder::normalize);
    vectors
}

//! Dense ranking: the inner product of the embeddings of a document and of a query. It is their cosine if embeddings have length 1.

mod encoder;
mod exact;
mod flat;
mod hnsw;

use serde::{Deserialize, Serialize};

pub use encoder::{Encoder, EncoderOptions, Normalization, Pooling};
pub(super) use encoder::{EncoderShape, encoder_error};
use exact::Exact;
pub(super) use flat::FlatIndex;
use hnsw::Hnsw;

use super::ranked::RankedDocument;
use crate::builtin::Document;
use crate::env::EnvError;
use crate::files::FlatVectors;

/// Nearest-neighbor search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Neighbors {
    /// Exhaustive search over all documents.
    #[default]
    Exact,
    /// Approximate search in an HNSW graph, which may miss documents; for large corpora.
    Hnsw,
}

/// Options of dense ranking.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dense {
    /// Text before each query, such as `query: `.
    pub query_prefix: String,
    /// Text before each document, such as `passage: `.
    pub document_prefix: String,
    /// Nearest-neighbor search.
    pub neighbors: Neighbors,
}

impl Dense {
    /// Returns the text of a document that is embedded.
    pub(super) fn document_text(&self, Document { title, text, .. }: &Document) -> String {
        let gap = if title.is_empty() { "" } else { "\n" };
        format!("{}{title}{gap}{text}", self.document_prefix)
    }
}

/// Embedded documents.
pub(super) struct DenseIndex {
    encoder: Encoder,
    prefix: String,
    space: Space,
}

enum Space {
    Exact(Exact),
    Flat(FlatIndex),
    Hnsw(Hnsw),
}

impl DenseIndex {
    /// Embeds documents.
    pub(super) fn new(
        documents: &[Document],
        encoder: Encoder,
        dense: &Dense,
    ) -> Result<Self, EnvError> {
        if dense.neighbors == Neighbors::Hnsw && !encoder.normalizes() {
            return Err(EnvError::new(
                "`neighbors` is \"hnsw\", which needs embeddings of length 1, and the encoder does not scale them; write \
                 `normalize = \"always\"`, or `neighbors = \"exact\"`",
            ));
        }
        let texts: Vec<String> = documents.iter().map(|it| dense.document_text(it)).collect();
        let embeddings = encoder.encode(&texts)?;
        let space = match dense.neighbors {
            Neighbors::Exact => Space::Exact(Exact::new(&embeddings, encoder.width())),
            Neighbors::Hnsw => Space::Hnsw(Hnsw::new(embeddings, encoder.width())),
        };
        Ok(Self { encoder, prefix: dense.query_prefix.clone(), space })
    }

    /// Takes the embeddings of documents from a file.
    pub(super) fn stored(vectors: FlatVectors, encoder: Encoder, dense: &Dense) -> Self {
        let space = Space::Flat(FlatIndex::new(vectors));
        Self { encoder, prefix: dense.query_prefix.clone(), space }
    }

    /// Returns the `k` documents nearest to each query, nearest first.
    pub(super) fn search(
        &self,
        queries: &[&str],
        k: usize,
    ) -> Result<Vec<Vec<RankedDocument>>, EnvError> {
        let texts: Vec<String> =
            queries.iter().map(|query| format!("{}{query}", self.prefix)).collect();
        let embeddings = self.encoder.encode(&texts)?;
        Ok(match &self.space {
            Space::Exact(exact) => exact.search(&embeddings, k),
            Space::Flat(flat) => flat.search(&embeddings, k),
            Space::Hnsw(graph) => graph.search(&embeddings, k),
        })
    }
}

/// Returns random unit vectors `[n, width]`.
#[cfg(test)]
fn random(n: usize, width: usize, seed: u64) -> Vec<f32> {
    let mut draw = crate::rng::SplitMix64::new(seed);
    let mut uniform = || (draw.bits() >> 40) as f32 / (1_u64 << 24) as f32 - 0.5;
    let mut vectors: Vec<f32> = (0..n * width).map(|_| uniform()).collect();
    vectors.chunks_exact_mut(width).for_each(encoder::normalize);
    vectors
}

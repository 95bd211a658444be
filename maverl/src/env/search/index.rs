//! Documents of a corpus, and ranked retrieval over them.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::bm25::Bm25;
use super::build::check_vectors;
use super::dense::{Dense, DenseIndex, Encoder};
use super::ranked::{RankedDocument, best_ranked};
use crate::builtin::Document;
use crate::env::EnvError;
use crate::files::FlatVectors;

/// Minimum number of documents of each ranking that are fused.
const FUSED: usize = 100;
/// Constant `k` of reciprocal rank fusion: larger values reduce the weight of the first ranks.
const FUSION: f32 = 60.0;

/// Ranking of documents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ranking {
    /// By words shared with the query.
    #[default]
    Bm25,
    /// By the cosine of embeddings.
    Dense,
    /// By both, with reciprocal rank fusion.
    Hybrid,
}

/// In-memory index of documents.
///
/// Documents with equal scores are ordered by their keys, so results do not depend on the order of the corpus. With embeddings
/// from a file they are ordered by their rows.
pub struct Index {
    documents: Vec<Document>,
    ranker: Ranker,
}

enum Ranker {
    Words(Bm25),
    DenseIndex(DenseIndex),
    Both(Bm25, DenseIndex),
}

/// A retrieved document.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FoundDocument<'a> {
    /// The document.
    pub document: &'a Document,
    /// Score of the document for the query; larger is better. Scores of different rankings are not comparable.
    pub score: f32,
}

impl Index {
    /// Indexes documents by their words (BM25).
    ///
    /// # Errors
    ///
    /// If there are no documents.
    pub fn new(documents: Vec<Document>) -> Result<Self, EnvError> {
        Self::over(documents, |documents| Ok(Ranker::Words(Bm25::new(documents))))
    }

    /// Indexes documents by their embeddings.
    ///
    /// # Errors
    ///
    /// If there are no documents, or the encoder fails.
    pub fn dense(
        documents: Vec<Document>,
        encoder: Encoder,
        dense: &Dense,
    ) -> Result<Self, EnvError> {
        Self::over(documents, |documents| {
            Ok(Ranker::DenseIndex(DenseIndex::new(documents, encoder, dense)?))
        })
    }

    /// Indexes documents by their words and their embeddings.
    ///
    /// The score of a document is `Σ 1 / (60 + rank)` over both rankings, with ranks from 1 (reciprocal rank fusion;
    /// Cormack, Clarke and Buettcher, SIGIR 2009).
    ///
    /// # Errors
    ///
    /// If there are no documents, or the encoder fails.
    pub fn hybrid(
        documents: Vec<Document>,
        encoder: Encoder,
        dense: &Dense,
    ) -> Result<Self, EnvError> {
        Self::over(documents, |documents| {
            Ok(Ranker::Both(Bm25::new(documents), DenseIndex::new(documents, encoder, dense)?))
        })
    }

    /// Indexes documents by embeddings from a file, whose rows are those of the documents; with [`Ranking::Hybrid`] also by their
    /// words.
    ///
    /// # Errors
    ///
    /// If there are not as many documents as rows, or the rows do not have the width of the encoder.
    pub fn stored(
        documents: Vec<Document>,
        vectors: FlatVectors,
        encoder: Encoder,
        dense: &Dense,
        ranking: Ranking,
    ) -> Result<Self, EnvError> {
        check_vectors(&vectors, encoder.width(), documents.len())?;
        let meaning = DenseIndex::stored(vectors, encoder, dense);
        let ranker = match ranking {
            Ranking::Hybrid => Ranker::Both(Bm25::new(&documents), meaning),
            Ranking::Bm25 | Ranking::Dense => Ranker::DenseIndex(meaning),
        };
        Ok(Self { documents, ranker })
    }

    fn over(
        mut documents: Vec<Document>,
        ranker: impl FnOnce(&[Document]) -> Result<Ranker, EnvError>,
    ) -> Result<Self, EnvError> {
        if documents.is_empty() {
            return Err(EnvError::new("the corpus has no documents to index"));
        }
        documents.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { ranker: ranker(&documents)?, documents })
    }

    /// Returns the ranking of the index.
    pub fn ranking(&self) -> Ranking {
        match self.ranker {
            Ranker::Words(_) => Ranking::Bm25,
            Ranker::DenseIndex(_) => Ranking::Dense,
            Ranker::Both(..) => Ranking::Hybrid,
        }
    }

    /// Returns the documents in key order, or with embeddings from a file in the order of their rows; there is at least one.
    pub fn documents(&self) -> &[Document] {
        &self.documents
    }

    /// Returns the best `k` documents for each query, best first. The result of a query does not depend on the other
    /// queries.
    ///
    /// # Errors
    ///
    /// If the encoder fails.
    pub fn search<Q: AsRef<str>>(
        &self,
        queries: &[Q],
        k: usize,
    ) -> Result<Vec<Vec<FoundDocument<'_>>>, EnvError> {
        let queries: Vec<&str> = queries.iter().map(AsRef::as_ref).collect();
        Ok(self.rank_queries(&queries, k)?.iter().map(|ranked| self.hits(ranked)).collect())
    }

    /// Returns the result of [`Index::search`] as positions.
    pub(super) fn rank_queries(
        &self,
        queries: &[&str],
        k: usize,
    ) -> Result<Vec<Vec<RankedDocument>>, EnvError> {
        let k = k.min(self.documents.len());
        match &self.ranker {
            Ranker::Words(words) => Ok(by_words(words, queries, k)),
            Ranker::DenseIndex(meaning) => meaning.search(queries, k),
            Ranker::Both(words, meaning) => {
                let depth = k.max(FUSED).min(self.documents.len());
                let by_words = by_words(words, queries, depth);
                let by_meaning = meaning.search(queries, depth)?;
                let both = by_words.iter().zip(&by_meaning);
                Ok(both.map(|(words, meaning)| fuse([words, meaning], k)).collect())
            }
        }
    }

    /// Returns the documents at positions of this index.
    pub(super) fn hits(&self, ranked: &[RankedDocument]) -> Vec<FoundDocument<'_>> {
        ranked
            .iter()
            .map(|it| FoundDocument { document: &self.documents[it.place], score: it.score })
            .collect()
    }
}

fn by_words(words: &Bm25, queries: &[&str], k: usize) -> Vec<Vec<RankedDocument>> {
    queries.par_iter().map(|query| words.search(query, k)).collect()
}

/// Returns the best `k` of two rankings by the sum of `1 / (60 + rank)`.
fn fuse(rankings: [&Vec<RankedDocument>; 2], k: usize) -> Vec<RankedDocument> {
    let mut scores: BTreeMap<usize, f32> = BTreeMap::new();
    for ranking in rankings {
        for (rank, ranked) in (1..).zip(ranking) {
            *scores.entry(ranked.place).or_default() += 1.0 / (FUSION + rank as f32);
        }
    }
    best_ranked(
        scores.into_iter().map(|(place, score)| RankedDocument { place, score }).collect(),
        k,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranking(places: &[usize]) -> Vec<RankedDocument> {
        places.iter().map(|&place| RankedDocument { place, score: 1.0 }).collect()
    }

    #[test]
    fn what_both_rankings_have_comes_first() {
        let fused = fuse([&ranking(&[4, 7, 1]), &ranking(&[9, 1, 7])], 5);
        let places: Vec<usize> = fused.iter().map(|ranked| ranked.place).collect();
        // 7 and 1 are second and third in one ranking each: equal sums, so the smaller position comes first.
        assert_eq!(places, [1, 7, 4, 9]);
        assert_eq!(fused[0].score, 1.0 / 62.0 + 1.0 / 63.0);
        assert_eq!(fused[2].score, 1.0 / 61.0);
        assert_eq!(
            fuse([&ranking(&[]), &ranking(&[3, 2])], 1),
            [RankedDocument { place: 3, score: 1.0 / 61.0 }]
        );
    }

    #[test]
    fn the_best_are_taken_whatever_the_order() {
        let scored = |all: &[(usize, f32)]| -> Vec<RankedDocument> {
            all.iter().map(|&(place, score)| RankedDocument { place, score }).collect()
        };
        let all = scored(&[(3, 0.5), (0, 0.1), (2, 0.5), (1, 0.9)]);
        assert_eq!(best_ranked(all.clone(), 2), scored(&[(1, 0.9), (2, 0.5)]));
        assert_eq!(best_ranked(all.clone(), 9), scored(&[(1, 0.9), (2, 0.5), (3, 0.5), (0, 0.1)]));
        assert_eq!(best_ranked(all, 0), []);
    }
}

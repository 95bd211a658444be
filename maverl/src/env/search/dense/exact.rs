//! Exhaustive nearest-neighbor search.

use maverl_kernels::matmul::{PackedWeight, Precision};

use crate::env::search::ranked::{RankedDocument, best_ranked};

/// Number of queries whose scores are in memory at once.
const BATCH: usize = 32;

/// Vectors in the packed form of matrix products.
pub(super) struct Exact(PackedWeight);

impl Exact {
    /// Packs vectors `[n, width]`.
    pub(super) fn new(vectors: &[f32], width: usize) -> Self {
        Self(PackedWeight::pack(Precision::F32, vectors, vectors.len() / width, width))
    }

    /// Returns the `k` vectors with the largest inner products with each query of `[queries, width]`, largest first.
    pub(super) fn search(&self, queries: &[f32], k: usize) -> Vec<Vec<RankedDocument>> {
        let (n, width) = self.0.shape();
        let mut found = Vec::with_capacity(queries.len() / width);
        for batch in queries.chunks(BATCH * width) {
            let m = batch.len() / width;
            let mut scores = vec![0.0; m * n];
            Precision::F32.set().nt_packed(batch, &self.0, &mut scores, m);
            found.extend(scores.chunks_exact(n).map(|scores| {
                let all = scores.iter().enumerate();
                best_ranked(all.map(|(place, &score)| RankedDocument { place, score }).collect(), k)
            }));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::random;
    use super::*;

    #[test]
    fn every_vector_is_nearest_to_itself() {
        let vectors = random(70, 24, 1);
        let found = Exact::new(&vectors, 24).search(&vectors, 3);
        for (place, ranked) in found.iter().enumerate() {
            assert_eq!((ranked.len(), ranked[0].place), (3, place));
            assert!((ranked[0].score - 1.0).abs() < 1e-5);
            assert!(ranked.is_sorted_by(|a, b| a > b));
        }
    }

    #[test]
    fn equally_near_vectors_come_in_their_order() {
        let one = random(1, 24, 1);
        let found = Exact::new(&one.repeat(5), 24).search(&one, 3);
        assert_eq!(found[0].iter().map(|ranked| ranked.place).collect::<Vec<_>>(), [0, 1, 2]);
    }
}

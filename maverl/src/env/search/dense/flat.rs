//! Exhaustive search over the vectors of a file, which are read block after block.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use maverl_kernels::matmul::Precision;
use maverl_kernels::run_alone;
use rayon::prelude::*;

use crate::env::search::ranked::RankedDocument;
use crate::files::{FlatMetric, FlatVectors};

/// Numbers of a block of vectors: what a thread has in its cache.
const BLOCK: usize = 64 * 1024;
/// Number of sums that a squared distance is added up in.
const LANES: usize = 16;

/// Vectors of a flat file of faiss.
pub(in crate::env::search) struct FlatIndex(FlatVectors);

impl FlatIndex {
    pub(in crate::env::search) fn new(vectors: FlatVectors) -> Self {
        Self(vectors)
    }

    /// Returns the `k` vectors nearest to each query of `[queries, width]`, nearest first, and equally near ones in their order.
    /// Scores are inner products, or negative squared distances. Vectors with NaN are never found, as in faiss.
    ///
    /// A score depends on its query and its vector only, and the order of results is total, so neither blocks nor threads change
    /// them.
    pub(in crate::env::search) fn search(
        &self,
        queries: &[f32],
        k: usize,
    ) -> Vec<Vec<RankedDocument>> {
        let count = queries.len() / self.0.width();
        let rows = (BLOCK / self.0.width()).max(1);
        let found = (0..self.0.len().div_ceil(rows))
            .into_par_iter()
            .fold(|| BlockScan::new(count), |scan, block| self.scan(scan, block * rows, queries, k))
            .map(|scan| scan.nearest)
            .reduce(|| vec![NearestList::default(); count], |a, b| merge(a, b, k));
        found.into_iter().map(NearestList::into_ranked).collect()
    }

    /// Adds the vectors of the block that begins at a row.
    fn scan(&self, mut scan: BlockScan, first: usize, queries: &[f32], k: usize) -> BlockScan {
        let (width, BlockScan { vectors, scores, nearest }) = (self.0.width(), &mut scan);
        let last = (first + (BLOCK / width).max(1)).min(self.0.len());
        let rows = last - first;
        self.0.read(first..last, vectors);
        scores.resize(nearest.len() * rows, 0.0);
        match self.0.metric() {
            FlatMetric::InnerProduct => run_alone(|| {
                let product = Precision::F32.set();
                product.nt(queries, vectors, scores, nearest.len(), rows, width);
            }),
            FlatMetric::SquaredDistance => distances(queries, vectors, scores, width),
        }
        for (nearest, scores) in nearest.iter_mut().zip(scores.chunks_exact(rows)) {
            for (row, &score) in scores.iter().enumerate() {
                nearest.add(RankedDocument { place: first + row, score }, k);
            }
        }
        scan
    }
}

/// Writes negative squared distances of queries `[m, width]` and vectors `[n, width]` to `scores` `[m, n]`. Differences are squared
/// one by one: near vectors of large numbers have exact distances too.
fn distances(queries: &[f32], vectors: &[f32], scores: &mut [f32], width: usize) {
    let pairs = queries.chunks_exact(width).flat_map(|query| {
        let others = vectors.chunks_exact(width);
        others.map(move |vector| -squared_distance(query, vector))
    });
    scores.iter_mut().zip(pairs).for_each(|(score, distance)| *score = distance);
}

/// Returns `Σ (aᵢ − bᵢ)²`, in sixteen sums that are then added in order.
fn squared_distance(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0.0_f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += (a - b) * (a - b);
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
    sums.iter().sum::<f32>() + rest
}

/// Memory of a thread: a block of vectors, its scores `[queries, rows]`, and the nearest ones so far.
struct BlockScan {
    vectors: Vec<f32>,
    scores: Vec<f32>,
    nearest: Vec<NearestList>,
}

impl BlockScan {
    fn new(queries: usize) -> Self {
        let nearest = vec![NearestList::default(); queries];
        Self { vectors: Vec::new(), scores: Vec::new(), nearest }
    }
}

/// The nearest vectors of a query; the farthest of them is at the top.
#[derive(Clone, Default)]
struct NearestList(BinaryHeap<Reverse<RankedDocument>>);

impl NearestList {
    /// Adds a vector if it is among the `k` nearest.
    fn add(&mut self, ranked: RankedDocument, k: usize) {
        if ranked.score.is_nan() || k == 0 {
            return;
        }
        if self.0.len() < k {
            self.0.push(Reverse(ranked));
        } else if let Some(mut farthest) = self.0.peek_mut()
            && ranked > farthest.0
        {
            *farthest = Reverse(ranked);
        }
    }

    fn into_ranked(self) -> Vec<RankedDocument> {
        self.0.into_sorted_vec().into_iter().map(|Reverse(ranked)| ranked).collect()
    }
}

/// Returns the `k` nearest vectors of each query, of those of two parts.
fn merge(mut into: Vec<NearestList>, from: Vec<NearestList>, k: usize) -> Vec<NearestList> {
    for (into, from) in into.iter_mut().zip(from) {
        from.0.into_iter().for_each(|Reverse(ranked)| into.add(ranked, k));
    }
    into
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use serde::Deserialize;

    use super::super::random;
    use super::*;
    use crate::files::FlatWriter;

    fn index(metric: FlatMetric, vectors: &[f32], width: usize) -> FlatIndex {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flat.index");
        let mut writer = FlatWriter::create(&path, metric, width, vectors.len() / width).unwrap();
        writer.add(vectors).unwrap();
        writer.finish().unwrap();
        FlatIndex::new(FlatVectors::open(&path).unwrap())
    }

    /// Returns the scores of all vectors for a query, in f64.
    fn all_scores(metric: FlatMetric, vectors: &[f32], query: &[f32]) -> Vec<f64> {
        let score = |vector: &[f32]| -> f64 {
            let pairs = query.iter().zip(vector).map(|(&a, &b)| (f64::from(a), f64::from(b)));
            match metric {
                FlatMetric::InnerProduct => pairs.map(|(a, b)| a * b).sum(),
                FlatMetric::SquaredDistance => -pairs.map(|(a, b)| (a - b) * (a - b)).sum::<f64>(),
            }
        };
        vectors.chunks_exact(query.len()).map(score).collect()
    }

    #[test]
    fn the_nearest_vectors_are_those_of_a_comparison_with_all_in_f64() {
        for (width, n) in [(24, 700), (1000, 300), (3, 20_000)] {
            let (vectors, queries) = (random(n, width, 1), random(5, width, 2));
            for metric in [FlatMetric::InnerProduct, FlatMetric::SquaredDistance] {
                let found = index(metric, &vectors, width).search(&queries, 20);
                let mut largest = 0.0_f64;
                for (query, found) in queries.chunks_exact(width).zip(&found) {
                    let scores = all_scores(metric, &vectors, query);
                    let mut sorted = scores.clone();
                    sorted.sort_by(|a, b| b.total_cmp(a));
                    assert_eq!(found.len(), 20);
                    assert!(found.is_sorted_by(|a, b| a > b));
                    for (found, expected) in found.iter().zip(sorted) {
                        // Vectors whose scores differ by rounding alone may change places.
                        assert!((scores[found.place] - expected).abs() < 1e-6);
                        largest = largest.max((f64::from(found.score) - expected).abs());
                    }
                }
                println!("{metric:?} [{n}, {width}]: largest difference of scores {largest:e}");
                assert!(largest < 1e-5, "{largest}");
            }
        }
    }

    #[test]
    fn the_number_of_threads_and_the_batch_change_no_bit() {
        let (vectors, queries) = (random(3000, 32, 1), random(9, 32, 2));
        for metric in [FlatMetric::InnerProduct, FlatMetric::SquaredDistance] {
            let index = index(metric, &vectors, 32);
            let bits = |found: Vec<Vec<RankedDocument>>| -> Vec<(usize, u32)> {
                found.iter().flatten().map(|it| (it.place, it.score.to_bits())).collect()
            };
            let expected = bits(index.search(&queries, 7));
            for threads in [1, 2, 5] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                assert_eq!(bits(pool.install(|| index.search(&queries, 7))), expected);
            }
            let alone = queries.chunks_exact(32).flat_map(|query| index.search(query, 7));
            assert_eq!(bits(alone.collect()), expected);
        }
    }

    #[test]
    fn equal_vectors_come_in_their_order_and_those_with_nan_never() {
        let one = random(1, 8, 3);
        let mut vectors = one.repeat(6);
        vectors[2 * 8 + 1] = f32::NAN;
        for metric in [FlatMetric::InnerProduct, FlatMetric::SquaredDistance] {
            let index = index(metric, &vectors, 8);
            let places = |k| -> Vec<usize> {
                index.search(&one, k)[0].iter().map(|ranked| ranked.place).collect()
            };
            assert_eq!(places(3), [0, 1, 3]);
            assert_eq!(places(9), [0, 1, 3, 4, 5]);
            assert_eq!(places(0), [] as [usize; 0]);
        }
    }

    #[derive(Deserialize)]
    struct FaissResult {
        queries: Vec<Vec<f32>>,
        scores: Vec<Vec<f32>>,
        rows: Vec<Vec<usize>>,
    }

    #[test]
    fn a_file_of_faiss_gives_what_faiss_finds_in_it() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/encoders");
        for (name, sign) in [("flat-ip", 1.0), ("flat-l2", -1.0)] {
            let file = FlatVectors::open(&fixtures.join(format!("{name}.index"))).unwrap();
            let text = std::fs::read_to_string(fixtures.join(format!("{name}.json"))).unwrap();
            let recorded: FaissResult = serde_json::from_str(&text).unwrap();
            let found = FlatIndex::new(file).search(&recorded.queries.concat(), 10);
            for ((found, rows), scores) in found.iter().zip(&recorded.rows).zip(&recorded.scores) {
                let scored = scores.iter().map(|score| sign * score).zip(rows.iter().copied());
                let mut expected: Vec<(f32, usize)> = scored.collect();
                // faiss has equal inner products in the other order.
                expected.sort_by(|(a, i), (b, j)| b.total_cmp(a).then(i.cmp(j)));
                assert_eq!(found.len(), expected.len());
                for (found, (score, row)) in found.iter().zip(expected) {
                    assert_eq!(found.place, row, "{name}");
                    assert!((found.score - score).abs() < 1e-5, "{name}");
                }
            }
        }
    }
}

//! Approximate nearest-neighbor search: hierarchical navigable small worlds (Malkov and Yashunin, arXiv:1603.09320).
//!
//! Every vector is a node of the lowest layer, and one in [`LINKS`] nodes of a layer is also in the next. A search
//! descends from the single entry node at the top, in each layer towards the query. The graph is deterministic for the
//! same vectors in the same order: layers are sampled from a fixed seed, nodes are added one by one, and ties go to the
//! smaller index.
//!
//! The crates that were tried are not used. `instant-distance` 0.6 returns at most as many documents as were chosen
//! when the index was built, and its graph depends on the scheduling of threads. Graphs of `feox-ann` 0.1 differ
//! between processors. `hnsw_rs` 0.3 orders equal distances by the state of a heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rayon::prelude::*;

use crate::env::search::ranked::{RankedDocument, best_ranked};
use crate::rng::SplitMix64;

/// Number of links of a new node (`M` in the paper); the lowest layer allows twice as many later.
const LINKS: usize = 16;
/// Number of candidates among which links are chosen (`efConstruction`).
const BUILD_WIDTH: usize = 200;
/// Minimum number of candidates of a search (`ef`).
const SEARCH_WIDTH: usize = 128;
/// Maximum number of layers above the lowest.
const LAYERS: usize = 12;
const SEED: u64 = 0x6d61_7665_726c;

/// Vectors with their graph.
pub(super) struct Hnsw {
    width: usize,
    vectors: Vec<f32>,
    /// Neighbors of each node in each of its layers, from the lowest.
    links: Vec<Vec<Vec<u32>>>,
    /// A node of the highest layer.
    entry: usize,
}

impl Hnsw {
    /// Builds the graph of vectors `[n, width]`.
    pub(super) fn new(vectors: Vec<f32>, width: usize) -> Self {
        let n = vectors.len() / width;
        let mut graph = Self { width, vectors, links: Vec::with_capacity(n), entry: 0 };
        let mut draw = SplitMix64::new(SEED);
        for _ in 0..n {
            let up = (0..LAYERS).take_while(|_| draw.gen_bool(1.0 / LINKS as f64)).count();
            graph.add(up);
        }
        graph
    }

    /// Returns `k` vectors with the largest inner products with each query of `[queries, width]`, approximately.
    pub(super) fn search(&self, queries: &[f32], k: usize) -> Vec<Vec<RankedDocument>> {
        queries.par_chunks_exact(self.width).map(|query| self.nearest(query, k)).collect()
    }

    fn nearest(&self, query: &[f32], k: usize) -> Vec<RankedDocument> {
        if self.links.is_empty() {
            return Vec::new();
        }
        let start = self.descend(query, 0);
        best_ranked(self.near(query, &[start], k.max(SEARCH_WIDTH), 0), k)
    }

    fn vector(&self, place: usize) -> &[f32] {
        &self.vectors[place * self.width..][..self.width]
    }

    fn ranked_document(&self, query: &[f32], place: usize) -> RankedDocument {
        RankedDocument { place, score: product(query, self.vector(place)) }
    }

    /// Returns the highest layer.
    fn top(&self) -> usize {
        self.links[self.entry].len() - 1
    }

    /// Adds the next vector in the lowest layer and the `up` layers above it.
    fn add(&mut self, up: usize) {
        let place = self.links.len();
        self.links.push(vec![Vec::new(); up + 1]);
        if place == 0 {
            return;
        }
        let query = self.vector(place).to_vec();
        let mut from = vec![self.descend(&query, up)];
        for layer in (0..=up.min(self.top())).rev() {
            let near = self.near(&query, &from, BUILD_WIDTH, layer);
            from = near.iter().map(|ranked| ranked.place).collect();
            let chosen = self.choose(near, LINKS);
            for &neighbor in &chosen {
                self.link(neighbor as usize, place as u32, layer);
            }
            self.links[place][layer] = chosen;
        }
        if up > self.top() {
            self.entry = place;
        }
    }

    /// Links a node to another. A node with too many links keeps the best selection of them.
    fn link(&mut self, node: usize, other: u32, layer: usize) {
        let most = if layer == 0 { 2 * LINKS } else { LINKS };
        self.links[node][layer].push(other);
        if self.links[node][layer].len() > most {
            let (vector, others) = (self.vector(node), self.links[node][layer].iter());
            let ranked = others.map(|&place| self.ranked_document(vector, place as usize));
            self.links[node][layer] = self.choose(ranked.collect(), most);
        }
    }

    /// Returns the entry node of a search in `layer`: descends from the top to the nearest node found in each layer
    /// above.
    fn descend(&self, query: &[f32], layer: usize) -> usize {
        let mut nearest = self.ranked_document(query, self.entry);
        for above in (layer + 1..=self.top()).rev() {
            loop {
                let neighbors = self.links[nearest.place][above].iter();
                let next =
                    neighbors.map(|&place| self.ranked_document(query, place as usize)).max();
                match next.filter(|next| *next > nearest) {
                    Some(next) => nearest = next,
                    None => break,
                }
            }
        }
        nearest.place
    }

    /// Returns the nearest `width` nodes of a layer that are reachable from some of its nodes, unordered.
    fn near(
        &self,
        query: &[f32],
        from: &[usize],
        width: usize,
        layer: usize,
    ) -> Vec<RankedDocument> {
        let mut seen = vec![false; self.links.len()];
        from.iter().for_each(|&place| seen[place] = true);
        let start = from.iter().map(|&place| self.ranked_document(query, place));
        let mut frontier: BinaryHeap<RankedDocument> = start.collect();
        let mut kept: BinaryHeap<Reverse<RankedDocument>> =
            frontier.iter().copied().map(Reverse).collect();
        while let Some(node) = frontier.pop() {
            if kept.len() >= width && kept.peek().is_some_and(|Reverse(worst)| node < *worst) {
                break;
            }
            for &place in &self.links[node.place][layer] {
                let place = place as usize;
                if std::mem::replace(&mut seen[place], true) {
                    continue;
                }
                let next = self.ranked_document(query, place);
                if kept.len() < width || kept.peek().is_some_and(|Reverse(worst)| next > *worst) {
                    frontier.push(next);
                    kept.push(Reverse(next));
                    if kept.len() > width {
                        kept.pop();
                    }
                }
            }
        }
        kept.into_iter().map(|Reverse(ranked)| ranked).collect()
    }

    /// Selects links among nodes: first the nearest that are nearer to this node than to each other, so that links
    /// point in all directions; then the nearest of the rest.
    fn choose(&self, mut among: Vec<RankedDocument>, most: usize) -> Vec<u32> {
        among.sort_by(|a, b| b.cmp(a));
        let (mut chosen, mut rest): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        for RankedDocument { place, score } in among {
            let vector = self.vector(place);
            let mut others = chosen.iter().map(|&other| self.vector(other as usize));
            let is_apart = others.all(|other| product(vector, other) < score);
            let into = if is_apart { &mut chosen } else { &mut rest };
            into.push(place as u32);
            if chosen.len() == most {
                return chosen;
            }
        }
        rest.truncate(most - chosen.len());
        chosen.extend(rest);
        chosen
    }
}

/// Computes `Σ aᵢ bᵢ` in eight lanes, so that the compiler can vectorize it.
fn product(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; 8];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    lanes.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::encoder::normalize;
    use super::super::exact::Exact;
    use super::super::random;
    use super::*;

    /// Samples points around some centers, like texts about a few topics.
    fn clustered(n: usize, width: usize) -> Vec<f32> {
        let (centers, noise) = (random(50, width, 1), random(n, width, 2));
        let around = |(i, noise): (usize, &[f32])| {
            let center = &centers[i % 50 * width..][..width];
            let mut point: Vec<f32> = center.iter().zip(noise).map(|(c, x)| c + 0.7 * x).collect();
            normalize(&mut point);
            point
        };
        noise.chunks_exact(width).enumerate().flat_map(around).collect()
    }

    #[test]
    fn nearly_all_of_the_nearest_are_found() {
        nearly_all_are_found_among(800);
    }

    #[test]
    #[ignore = "second tier: takes ten seconds"]
    fn nearly_all_of_the_nearest_are_found_among_thousands() {
        nearly_all_are_found_among(3000);
    }

    fn nearly_all_are_found_among(n: usize) {
        for vectors in [random(n, 32, 3), clustered(n, 32)] {
            let queries = random(100, 32, 4);
            let exact = Exact::new(&vectors, 32).search(&queries, 10);
            let graph = Hnsw::new(vectors, 32).search(&queries, 10);
            let places = |ranked: &[RankedDocument]| -> BTreeSet<usize> {
                ranked.iter().map(|ranked| ranked.place).collect()
            };
            let common = exact.iter().zip(&graph).map(|(a, b)| (&places(a) & &places(b)).len());
            let recall = common.sum::<usize>() as f64 / 1000.0;
            println!("HNSW finds {recall:.3} of the 10 nearest of {n} vectors");
            assert!(recall > 0.95, "{recall}");
            assert!(graph.iter().all(|ranked| ranked.len() == 10));
            assert!(graph.iter().all(|ranked| ranked.is_sorted_by(|a, b| a > b)));
        }
    }

    #[test]
    fn a_graph_of_the_same_vectors_is_the_same() {
        let vectors = random(500, 16, 5);
        let [a, b] = [0, 1].map(|_| Hnsw::new(vectors.clone(), 16));
        assert_eq!((a.links, a.entry), (b.links, b.entry));
    }

    #[test]
    fn links_stay_in_their_layer_and_are_not_too_many() {
        let graph = Hnsw::new(random(800, 16, 6), 16);
        for (node, layers) in graph.links.iter().enumerate() {
            for (layer, links) in layers.iter().enumerate() {
                assert!(links.len() <= if layer == 0 { 2 * LINKS } else { LINKS });
                assert!(links.iter().all(|&link| link as usize != node));
                assert!(links.iter().all(|&link| graph.links[link as usize].len() > layer));
                assert_eq!(links.iter().collect::<BTreeSet<_>>().len(), links.len());
            }
        }
        assert!(graph.top() > 0);
    }

    #[test]
    fn few_vectors_and_equal_ones_are_all_found() {
        let one = random(1, 16, 7);
        for n in [1, 2, 5, 30] {
            let graph = Hnsw::new(one.repeat(n), 16);
            let found = graph.search(&one, n);
            let places: Vec<usize> = found[0].iter().map(|ranked| ranked.place).collect();
            assert_eq!(places, (0..n).collect::<Vec<_>>());
        }
    }
}

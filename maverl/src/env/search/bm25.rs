//! BM25 ranking of documents (Robertson and Zaragoza, 2009, The Probabilistic Relevance Framework, eq. 3.15, with the
//! `idf` of Lucene, which is never negative).
//!
//! ```text
//! score(d, q) = Σ_{w ∈ q} idf(w) · (k1 + 1) · tf(w, d) / (tf(w, d) + k1 · (1 − b + b · |d| / avgdl))
//! idf(w)      = ln(1 + (N − n(w) + 0.5) / (n(w) + 0.5))
//! ```
//!
//! `tf` is the number of occurrences of the word in the document, `|d|` the document's length in words, `avgdl` the
//! mean length, `N` the number of documents, and `n(w)` the number of documents with the word. A word that a query
//! repeats counts once.
//!
//! The index is rebuilt in memory at each start, so that none is stale. It has exact lengths of documents; `tantivy`
//! rounds those above 40 words.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use super::ranked::{RankedDocument, best_ranked};
use crate::IntoMap;
use crate::builtin::Document;

const K1: f64 = 1.2;
const B: f64 = 0.75;

/// Number of documents whose words are counted in parallel before they are added to the index.
const CHUNK: usize = 4096;
/// Threshold of sparse scoring. If fewer than one in this many documents has a word of the query, counted once for each
/// word, scores are sorted together instead of summed in a table of all documents.
const SPARSE: usize = 8;

/// Inverted index over title and text of every document as one field: lower case, split at every character that is not
/// a letter or digit.
pub(super) struct Bm25 {
    documents: usize,
    /// Postings of each word, in document order.
    postings: BTreeMap<Box<str>, Vec<Posting>>,
}

/// A document that has a word, and the word's contribution to its score.
struct Posting {
    place: u32,
    share: f32,
}

impl Bm25 {
    /// Indexes documents; results refer to them by position.
    pub(super) fn new(documents: &[Document]) -> Self {
        let mut counts: BTreeMap<Box<str>, Vec<(u32, u32)>> = BTreeMap::new();
        let mut lengths: Vec<u32> = Vec::with_capacity(documents.len());
        for chunk in documents.chunks(CHUNK) {
            let counted: Vec<BTreeMap<String, u32>> = chunk.par_iter().map(count).collect();
            for words in counted {
                let place = lengths.len() as u32;
                lengths.push(words.values().sum());
                for (word, count) in words {
                    counts.entry(word.into_boxed_str()).or_default().push((place, count));
                }
            }
        }
        let total: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
        let mean = total as f64 / lengths.len() as f64;
        let lengths = lengths.into_iter().map(f64::from);
        let norms: Vec<f64> = lengths.map(|length| K1 * (1.0 - B + B * length / mean)).collect();
        let postings =
            counts.into_iter().map(|(word, counts)| (word, word_postings(counts, &norms)));
        Self { documents: documents.len(), postings: postings.into_map() }
    }

    /// Returns the best `k` documents that have a word of the query, best first; ties in document order.
    pub(super) fn search(&self, query: &str, k: usize) -> Vec<RankedDocument> {
        if k == 0 {
            return Vec::new();
        }
        let words: BTreeSet<String> = words_of(query).collect();
        let lists = words.iter().filter_map(|word| self.postings.get(word.as_str()));
        let lists: Vec<&[Posting]> = lists.map(Vec::as_slice).collect();
        let found: usize = lists.iter().map(|list| list.len()).sum();
        let scores = if found < self.documents / SPARSE {
            sparse_scores(&lists)
        } else {
            dense_scores(&lists, self.documents)
        };
        best_ranked(scores, k)
    }
}

/// Returns the postings of a word from its documents, with its number of occurrences in each.
fn word_postings(counts: Vec<(u32, u32)>, norms: &[f64]) -> Vec<Posting> {
    let idf = idf(norms.len(), counts.len());
    let postings = counts.into_iter().map(|(place, count)| {
        let count = f64::from(count);
        let share = idf * (K1 + 1.0) * count / (count + norms[place as usize]);
        Posting { place, share: share as f32 }
    });
    postings.collect()
}

/// Computes `ln(1 + (N − n + 0.5) / (n + 0.5))`.
fn idf(documents: usize, with_word: usize) -> f64 {
    let (all, with_word) = (documents as f64, with_word as f64);
    libm::log(1.0 + (all - with_word + 0.5) / (with_word + 0.5))
}

/// Sums the contributions to each document, in the order of the lists.
fn sparse_scores(lists: &[&[Posting]]) -> Vec<RankedDocument> {
    let mut all: Vec<&Posting> = lists.iter().copied().flatten().collect();
    all.sort_by_key(|posting| posting.place); // stable: shares of a document stay in the order of the lists
    let of_one = all.chunk_by(|a, b| a.place == b.place);
    let ranked = of_one.map(|postings| RankedDocument {
        place: postings[0].place as usize,
        score: postings.iter().fold(0.0, |sum, posting| sum + posting.share),
    });
    ranked.collect()
}

/// Computes the same sums in a table of all documents.
fn dense_scores(lists: &[&[Posting]], documents: usize) -> Vec<RankedDocument> {
    let mut scores = vec![0.0_f32; documents];
    for posting in lists.iter().copied().flatten() {
        scores[posting.place as usize] += posting.share;
    }
    let scores = scores.into_iter().enumerate().filter(|(_, score)| *score > 0.0);
    scores.map(|(place, score)| RankedDocument { place, score }).collect()
}

/// Counts the words of a document.
fn count(document: &Document) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for word in words_of(&document.title).chain(words_of(&document.text)) {
        *counts.entry(word).or_default() += 1;
    }
    counts
}

/// Iterates over the words of a text in lower case.
fn words_of(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(|word| word.chars().flat_map(char::to_lowercase).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index(texts: &[&str]) -> Bm25 {
        let document = |(i, text): (usize, &&str)| Document {
            key: i.to_string(),
            title: String::new(),
            text: (*text).to_owned(),
            contents: None,
        };
        Bm25::new(&texts.iter().enumerate().map(document).collect::<Vec<_>>())
    }

    #[test]
    fn scores_are_those_of_the_formula() {
        let index = index(&["Red apple, red pear", "red", "Green GRAPES of 2024"]);
        // N = 3, lengths 4, 1, 4, mean 3; `red` is in two documents, `2024` in one.
        let share = |idf: f64, tf: f64, length: f64| {
            idf * 2.2 * tf / (tf + 1.2 * (0.25 + 0.75 * length / 3.0))
        };
        let (red, year) = ((1.0 + 1.5 / 2.5_f64).ln(), (1.0 + 2.5 / 1.5_f64).ln());
        let found = index.search("RED 2024 red?", 9);
        let expected =
            [(2, share(year, 1.0, 4.0)), (0, share(red, 2.0, 4.0)), (1, share(red, 1.0, 1.0))];
        let mut expected = expected.to_vec();
        expected.sort_by(|a, b| b.1.total_cmp(&a.1));
        assert_eq!(found.len(), 3);
        for (found, (place, score)) in found.iter().zip(expected) {
            assert_eq!(found.place, place);
            assert!((f64::from(found.score) - score).abs() < 1e-6, "{found:?} and {score}");
        }
        assert!(index.search("of which", 9).len() == 1 && index.search("?!", 9).is_empty());
        assert!(index.search("red", 0).is_empty());
    }

    #[test]
    fn a_document_that_is_one_word_longer_scores_less() {
        let long = |n: usize| format!("needle {}", "hay ".repeat(n));
        let index = index(&[&long(1001), &long(1000), "other"]);
        let found = index.search("needle", 2);
        assert_eq!((found[0].place, found[1].place), (1, 0));
        assert!(found[0].score > found[1].score, "lengths are exact");
    }

    proptest! {
        #[test]
        fn scores_are_the_same_by_sorting_and_in_a_table(
            texts in prop::collection::vec("[a-d]( [a-d]){0,9}", 1..60), query in "[a-e]( [a-e]){0,4}",
        ) {
            let index = index(&texts.iter().map(String::as_str).collect::<Vec<_>>());
            let words: BTreeSet<String> = words_of(&query).collect();
            let lists: Vec<&[Posting]> =
                words.iter().filter_map(|word| index.postings.get(word.as_str())).map(Vec::as_slice).collect();
            prop_assert_eq!(sparse_scores(&lists), dense_scores(&lists, texts.len()));
        }
    }
}

//! Removal of rows that occur twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::collect::example::CollectedTask;
use crate::collect::kind::Dedup;
use crate::collect::rows::Row;
use crate::collect::split::hash;
use crate::rng::SplitMix64;

/// Number of hashes of a signature.
const HASHES: usize = 128;
/// Number of words of a shingle.
const WORDS: usize = 5;
/// Similarity from which on replies are nearly equal.
const NEAR: f64 = 0.8;

/// MinHash of the shingles of a text: the share of equal places estimates the Jaccard similarity.
type Signature = Vec<u64>;

/// Removes rows that are equal, or nearly equal, to an earlier one.
pub(super) fn dedup(rows: &mut Vec<Row>, dedup: Dedup) {
    if dedup == Dedup::None {
        return;
    }
    let mut seen: BTreeSet<String> = BTreeSet::new();
    rows.retain(|row| seen.insert(content(row)));
    if dedup == Dedup::Near {
        let mut kept: BTreeMap<(CollectedTask, String, Option<bool>), Vec<Signature>> =
            BTreeMap::new();
        rows.retain(|row| {
            let key = (row.task.clone(), row.seat.clone(), row.label);
            let (known, signature) = (kept.entry(key).or_default(), signature(&row.replies));
            let new = known.iter().all(|other| similarity(other, &signature) < NEAR);
            if new {
                known.push(signature);
            }
            new
        });
    }
}

/// Returns the columns without the origin and the scores.
fn content(row: &Row) -> String {
    let mut columns = row.columns.clone();
    if let Some(columns) = columns.as_object_mut() {
        for name in ["maverl", "score", "scores", "counts", "score_chosen", "score_rejected"] {
            columns.remove(name);
        }
    }
    columns.to_string()
}

fn signature(text: &str) -> Signature {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let size = WORDS.min(words.len()).max(1);
    let mut least = vec![u64::MAX; HASHES];
    for shingle in words.windows(size) {
        // Each place of the signature has the least of its own hashes of all shingles.
        let mut hashes = SplitMix64::new(hash(shingle.join(" ").as_bytes()));
        for place in &mut least {
            *place = (*place).min(hashes.bits());
        }
    }
    least
}

fn similarity(one: &Signature, other: &Signature) -> f64 {
    let equal = one.iter().zip(other).filter(|(a, b)| a == b).count();
    equal as f64 / HASHES as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_similarity_of_signatures_is_that_of_the_texts() {
        let words =
            |from: usize, to: usize| -> String { (from..to).map(|n| format!("w{n} ")).collect() };
        let near = |a: &str, b: &str| similarity(&signature(a), &signature(b));
        assert!((near(&words(0, 100), &words(0, 100)) - 1.0).abs() < 1e-9);
        assert!(near(&words(0, 100), &words(200, 300)) < 0.05);
        // 86 shingles of 106 are equal.
        let found = near(&words(0, 100), &words(10, 110));
        assert!((found - 86.0 / 106.0).abs() < 0.12, "{found}");
        assert!(near("yes", "no") < 0.05 && near("Yes", "yes") > 0.95);
    }
}

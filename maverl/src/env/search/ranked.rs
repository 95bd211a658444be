//! Documents by rank.

use std::cmp::Ordering;

/// A document by its position in the index, with its score. The better one compares as greater.
#[derive(Debug, Clone, Copy)]
pub(super) struct RankedDocument {
    pub(super) place: usize,
    pub(super) score: f32,
}

impl Ord for RankedDocument {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.place.cmp(&self.place))
    }
}

impl PartialOrd for RankedDocument {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RankedDocument {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for RankedDocument {}

/// Returns the best `k`, best first.
pub(super) fn best_ranked(mut ranked: Vec<RankedDocument>, k: usize) -> Vec<RankedDocument> {
    if k > 0 && k < ranked.len() {
        ranked.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
    }
    ranked.truncate(k);
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    ranked
}

//! Splits by task, and equal numbers of labels.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::collect::example::CollectedTask;
use crate::collect::rows::Row;

/// Rows of a task with one label.
type Labeled = (CollectedTask, Option<bool>);

/// Returns true if the rows of a question are in the test split; tasks with the same question are in one split.
pub(super) fn is_test(question: &str, share: f64) -> bool {
    let question = u64::from_str_radix(question, 16).unwrap_or_default();
    // The upper 53 bits are exact in a double.
    ((question >> 11) as f64) < share * (1_u64 << 53) as f64
}

/// Keeps at most so many rows of a task with each label: those with the smallest hashes, so that no checkpoint or place
/// in the group is preferred.
pub(super) fn balance(rows: &mut Vec<Row>, most: usize) {
    let mut order: BTreeMap<Labeled, Vec<(u64, usize)>> = BTreeMap::new();
    for (i, row) in rows.iter().enumerate() {
        let place = (hash(row.columns["maverl"].to_string().as_bytes()), i);
        order.entry((row.task.clone(), row.label)).or_default().push(place);
    }
    let mut kept = vec![false; rows.len()];
    for places in order.values_mut() {
        places.sort_unstable();
        places.iter().take(most).for_each(|(_, i)| kept[*i] = true);
    }
    let mut kept = kept.into_iter();
    rows.retain(|_| kept.next().unwrap_or(false));
}

/// Returns the first 64 bits of the SHA-256 of bytes.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let digest = Sha256::digest(bytes);
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(first)
}

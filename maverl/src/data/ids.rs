//! Ids of rows, which are unique within a source.

use sha2::{Digest, Sha256};

/// Ids that were seen, as hashes of 128 bits: a table with open addressing, of at most 96 bytes an id. Two of a million ids have
/// the same hash with a probability of 1e-27.
#[derive(Default)]
pub(super) struct SeenIds {
    /// As many as a power of two, of which at most three of four are in use.
    slots: Vec<IdSlot>,
    used: usize,
}

#[derive(Clone, Copy, Default)]
struct IdSlot {
    hash: [u64; 2],
    /// Line of the row, plus one; 0 in a slot that is not in use.
    mark: usize,
}

impl SeenIds {
    /// Adds the id of a row at a line. Returns the line of an earlier row with this id, if there is one.
    pub(super) fn insert(&mut self, source: &str, id: &str, line: usize) -> Option<usize> {
        if self.used * 4 >= self.slots.len() * 3 {
            self.grow();
        }
        let slot = IdSlot { hash: id_hash(source, id), mark: line + 1 };
        let at = self.find(slot.hash);
        let earlier = self.slots[at].mark.checked_sub(1);
        if earlier.is_none() {
            self.slots[at] = slot;
            self.used += 1;
        }
        earlier
    }

    /// Returns the index of the slot with a hash, or of the free slot for it.
    fn find(&self, hash: [u64; 2]) -> usize {
        let last = self.slots.len() - 1;
        let mut at = hash[0] as usize & last;
        while self.slots[at].mark != 0 && self.slots[at].hash != hash {
            at = (at + 1) & last;
        }
        at
    }

    fn grow(&mut self) {
        let size = (2 * self.slots.len()).max(64);
        for slot in std::mem::replace(&mut self.slots, vec![IdSlot::default(); size]) {
            if slot.mark != 0 {
                let at = self.find(slot.hash);
                self.slots[at] = slot;
            }
        }
    }
}

/// Returns the first half of the hash of an id and its source.
fn id_hash(source: &str, id: &str) -> [u64; 2] {
    let mut hash = Sha256::new();
    hash.update((source.len() as u64).to_le_bytes());
    hash.update(source);
    hash.update(id);
    let digest = hash.finalize();
    let parts = digest[..].as_chunks::<8>().0;
    [u64::from_le_bytes(parts[0]), u64::from_le_bytes(parts[1])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_again_with_the_line_of_its_first_row() {
        let mut ids = SeenIds::default();
        for line in 0..10_000 {
            assert_eq!(ids.insert("a", &line.to_string(), line), None);
            assert_eq!(ids.insert("b", &line.to_string(), line), None);
        }
        for line in [0, 1, 63, 9_999] {
            assert_eq!(ids.insert("a", &line.to_string(), 20_000), Some(line));
        }
        // Source and id are divided.
        assert_eq!(ids.insert("a1", "2", 7), None);
        assert_eq!(ids.insert("a", "12x", 7), None);
        assert!(ids.slots.len() * size_of::<IdSlot>() <= 96 * ids.used, "{}", ids.slots.len());
    }
}

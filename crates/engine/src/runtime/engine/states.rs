//! Slots of states of recurrent layers: those of running requests, free ones, and copies for prefixes.

use std::collections::BTreeMap;

use super::prefix::NodeId;
use crate::net::KvStore;

/// Number of tokens of a block.
const TOKENS: usize = KvStore::TOKENS;

/// Place of a copy: a node of the prefix tree, and the number of its tokens.
pub(super) type StatePlace = (NodeId, usize);

/// Slots of states, by numbers from 0.
#[derive(Debug, Default)]
pub(super) struct StateSlots {
    /// Maximum number of slots; 0 if there are no recurrent layers.
    pub(super) capacity: usize,
    /// Number of slots that the store has.
    pub(super) made: usize,
    pub(super) free: Vec<u32>,
    kept: BTreeMap<StatePlace, KeptStates>,
    clock: u64,
}

/// Copy of the states after a prefix.
#[derive(Debug)]
struct KeptStates {
    slot: u32,
    /// Time of the last access.
    used: u64,
}

impl StateSlots {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// Returns the last copy at a node, after at most so many of its tokens.
    pub(super) fn last_at(&self, node: NodeId, most: usize) -> Option<StatePlace> {
        self.kept.range((node, 1)..=(node, most.max(1))).next_back().map(|(place, _)| *place)
    }

    /// Drops the copies at a node that leaves the tree.
    pub(super) fn drop_node(&mut self, node: NodeId) {
        while let Some(place) = self.last_at(node, TOKENS) {
            let kept = self.kept.remove(&place);
            self.free.extend(kept.map(|kept| kept.slot));
        }
    }

    /// Forgets all slots, because the store has none any more.
    pub(super) fn clear(&mut self) {
        debug_assert!(self.kept.is_empty() && self.free.len() == self.made, "no slot is in use");
        (self.made, self.free) = (0, Vec::new());
    }

    /// Returns the slot of a copy, which is used now.
    pub(super) fn touch(&mut self, place: StatePlace) -> Option<u32> {
        self.clock += 1;
        let kept = self.kept.get_mut(&place)?;
        kept.used = self.clock;
        Some(kept.slot)
    }

    /// Keeps a slot as a copy. A copy that is there has the same bits; the slot is then free.
    pub(super) fn keep(&mut self, place: StatePlace, slot: u32) {
        if self.touch(place).is_some() {
            self.free.push(slot);
        } else {
            self.kept.insert(place, KeptStates { slot, used: self.clock });
        }
    }

    /// Frees the copy that was not used for longest, but one.
    pub(super) fn evict(&mut self, except: Option<StatePlace>) {
        let others = self.kept.iter().filter(|(place, _)| Some(**place) != except);
        if let Some(place) = others.min_by_key(|(_, kept)| kept.used).map(|(place, _)| *place) {
            let kept = self.kept.remove(&place);
            self.free.extend(kept.map(|kept| kept.slot));
        }
    }

    /// Returns true if there is a slot that is free, can be made, or has a copy.
    pub(super) fn has_room(&self) -> bool {
        self.made < self.capacity || !self.free.is_empty() || !self.kept.is_empty()
    }
}

#[cfg(test)]
impl StateSlots {
    /// Asserts that each slot is of a request, free, or a copy.
    pub(super) fn check(&self, live: impl Iterator<Item = u32>) {
        let kept = self.kept.values().map(|kept| kept.slot);
        let mut all: Vec<u32> = live.chain(self.free.iter().copied()).chain(kept).collect();
        all.sort_unstable();
        assert_eq!(all, (0..self.made as u32).collect::<Vec<_>>(), "slots of states");
        assert!(self.made <= self.capacity);
    }
}

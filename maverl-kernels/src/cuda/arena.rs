//! One allocation of a device's memory, handed out in spans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that spans begin at multiples of.
const STEP: u64 = 512;

/// Memory that spans are allocated from: the smallest free range that fits, the lowest of equal ones. Work on one
/// stream may use a span as soon as another is freed, because launches run in order.
#[derive(Debug)]
pub struct Arena {
    start: u64,
    size: u64,
    state: Mutex<State>,
}

/// A range of an arena, freed when it is dropped.
#[derive(Debug)]
pub struct Span {
    at: u64,
    bytes: u64,
    arena: Arc<Arena>,
}

/// The arena has no free range that is large enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub asked: u64,
    /// Free bytes, in ranges that are all smaller.
    pub free: u64,
    /// Bytes of the arena.
    pub size: u64,
}

impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { asked, free, size } = self;
        write!(f, "out of memory: {asked} bytes asked for, {free} of {size} free, none together")
    }
}

impl std::error::Error for OutOfMemory {}

/// Free ranges by offset and by size.
#[derive(Debug, Default)]
struct State {
    by_offset: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    used: u64,
    most: u64,
}

impl State {
    fn insert(&mut self, offset: u64, bytes: u64) {
        self.by_offset.insert(offset, bytes);
        self.by_size.insert((bytes, offset));
    }

    fn remove(&mut self, offset: u64, bytes: u64) {
        self.by_offset.remove(&offset);
        self.by_size.remove(&(bytes, offset));
    }
}

impl Arena {
    /// Creates an arena over `size` bytes at an address.
    pub fn new(start: u64, size: u64) -> Arc<Self> {
        let size = size - size % STEP;
        let mut state = State::default();
        if size > 0 {
            state.insert(0, size);
        }
        Arc::new(Self { start, size, state: Mutex::new(state) })
    }

    /// Allocates a span.
    ///
    /// # Errors
    ///
    /// If no free range is large enough.
    pub fn alloc(self: &Arc<Self>, bytes: u64) -> Result<Span, OutOfMemory> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = bytes.max(1).next_multiple_of(STEP);
        let Some(&(free, offset)) = state.by_size.range((needed, 0)..).next() else {
            let free = self.size - state.used;
            return Err(OutOfMemory { asked: bytes, free, size: self.size });
        };
        state.remove(offset, free);
        if free > needed {
            state.insert(offset + needed, free - needed);
        }
        state.used += needed;
        state.most = state.most.max(state.used);
        Ok(Span { at: self.start + offset, bytes: needed, arena: Arc::clone(self) })
    }

    /// Returns the bytes of all spans, rounded up to whole steps.
    pub fn used(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).used
    }

    /// Returns the largest number of bytes that were used at once.
    pub fn high_water_mark(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).most
    }

    fn free(&self, at: u64, bytes: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.used -= bytes;
        let (mut offset, mut size) = (at - self.start, bytes);
        let before = state.by_offset.range(..offset).next_back().map(|(&at, &size)| (at, size));
        if let Some((at, bytes)) = before
            && at + bytes == offset
        {
            state.remove(at, bytes);
            (offset, size) = (at, size + bytes);
        }
        if let Some(&bytes) = state.by_offset.get(&(offset + size)) {
            state.remove(offset + size, bytes);
            size += bytes;
        }
        state.insert(offset, size);
    }
}

impl Span {
    /// Returns the address.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Returns the number of bytes, a multiple of 512.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.arena.free(self.at, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn spans_do_not_overlap_and_freed_ones_join() {
        let arena = Arena::new(1 << 20, 64 * STEP + 100);
        let mut spans: Vec<Span> = Vec::new();
        for i in 0..400_u64 {
            let bytes = crate::sample::derive_seed(i, 1) % (7 * STEP);
            if let Ok(span) = arena.alloc(bytes) {
                assert!(span.at() >= 1 << 20 && span.at() + span.bytes() <= (1 << 20) + 64 * STEP);
                assert!(span.at().is_multiple_of(STEP) && span.bytes() >= bytes);
                let apart = |other: &Span| {
                    span.at() + span.bytes() <= other.at()
                        || other.at() + other.bytes() <= span.at()
                };
                assert!(spans.iter().all(apart));
                spans.push(span);
            }
            if i % 3 > 0 && !spans.is_empty() {
                spans.swap_remove(crate::sample::derive_seed(i, 2) as usize % spans.len());
            }
            assert_eq!(arena.used(), spans.iter().map(Span::bytes).sum::<u64>());
        }
        spans.clear();
        assert_eq!(arena.used(), 0);
        assert_eq!(arena.alloc(64 * STEP).unwrap().at(), 1 << 20);
        assert_eq!(arena.high_water_mark(), 64 * STEP);
    }

    #[test]
    fn the_smallest_range_that_fits_is_taken_and_a_full_arena_says_so() {
        let arena = Arena::new(0, 10 * STEP);
        let [a, b, c, d] = [4, 1, 2, 3].map(|steps| arena.alloc(steps * STEP).unwrap());
        let of_c = c.at();
        drop((a, c));
        assert_eq!(arena.alloc(2 * STEP).unwrap().at(), of_c);
        let error = arena.alloc(5 * STEP).unwrap_err();
        assert_eq!(error, OutOfMemory { asked: 5 * STEP, free: 6 * STEP, size: 10 * STEP });
        drop((b, d));
    }
}

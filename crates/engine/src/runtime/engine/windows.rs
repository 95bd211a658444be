//! Parts of blocks for layers with a window: which blocks have theirs, who holds them, and how many there are.

use crate::files::HfConfig;
use crate::net::KvStore;

const TOKENS: usize = KvStore::TOKENS;
/// Least bytes that count for a block without its window: those of tables and trees.
const LEAST_BYTES: usize = 1 << 10;

/// Parts of blocks for layers with a window.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Keys that a token sees in these layers; 0 if there are none.
    keys: usize,
    /// Bytes of a part.
    bytes: usize,
    /// Maximum number of parts that one request holds at once.
    most: usize,
    /// Number of requests that hold the part of each block.
    pub(super) holders: Vec<u32>,
    /// True for each block that has its part.
    pub(super) there: Vec<bool>,
    /// Time at which the part of each block was last of use, if it is kept when a window leaves the block.
    pub(super) kept: Vec<Option<u64>>,
    clock: u64,
    /// Number of parts that exist.
    pub(super) made: usize,
    /// Number of parts that no block has.
    pub(super) spare: usize,
    /// Number of parts that requests hold.
    pub(super) held: usize,
}

impl Windows {
    /// Creates the parts of a model's blocks, for passes of at most so many tokens.
    pub(super) fn new(config: &HfConfig, bytes: usize, pass: usize) -> Self {
        let keys = config.evicted_window().filter(|_| bytes > 0).unwrap_or(0);
        let most = if keys == 0 { 0 } else { (keys + pass).div_ceil(TOKENS) + 2 };
        Self { keys, bytes: if keys == 0 { 0 } else { bytes }, most, ..Self::default() }
    }

    /// Returns the bytes of a part.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if there are such parts.
    pub(super) fn exist(&self) -> bool {
        self.keys > 0
    }

    /// Returns the bytes that count for the other part of a block.
    pub(super) fn other_bytes(&self, block: usize) -> usize {
        let other = block - self.bytes;
        if self.exist() { other.max(LEAST_BYTES) } else { other }
    }

    /// Returns the bytes of parts that requests hold.
    pub(super) fn held_bytes(&self) -> usize {
        self.held * self.bytes
    }

    /// Returns the bytes of all parts.
    pub(super) fn made_bytes(&self) -> usize {
        self.made * self.bytes
    }

    /// Returns the bytes of parts that a request for so many blocks holds at most at once.
    pub(super) fn bytes_of(&self, blocks: usize) -> usize {
        blocks.min(self.most) * self.bytes
    }

    /// Returns the largest number of blocks of one request within a number of bytes, with so many for each other part.
    pub(super) fn largest(&self, bytes: usize, other: usize) -> usize {
        let both = bytes / (other + self.bytes);
        if both <= self.most {
            return both;
        }
        (bytes - self.most * self.bytes) / other
    }

    /// Returns the first block that the next token after so many reads, or that after the last whole block of them, where a
    /// request with the same tokens may start.
    pub(super) fn first_block(&self, tokens: usize) -> usize {
        (tokens / TOKENS * TOKENS + 1).saturating_sub(self.keys) / TOKENS
    }

    /// Returns the largest number of leading blocks after which a whole window is there.
    pub(super) fn covered(&self, blocks: &[u32]) -> usize {
        let (mut run, mut found) = (0, 0);
        for (index, &block) in blocks.iter().enumerate() {
            run = if self.there[block as usize] { run + 1 } else { 0 };
            let end = index + 1;
            if run >= end - self.first_block(end * TOKENS).min(end) {
                found = end;
            }
        }
        found
    }

    /// Keeps the parts of blocks, as those that were of use last.
    pub(super) fn keep(&mut self, blocks: &[u32]) {
        self.clock += 1;
        for &block in blocks {
            self.kept[block as usize] = Some(self.clock);
        }
    }

    pub(super) fn hold(&mut self, block: u32) {
        let holders = &mut self.holders[block as usize];
        self.held += usize::from(*holders == 0);
        *holders += 1;
    }

    pub(super) fn let_go(&mut self, block: u32) {
        let holders = &mut self.holders[block as usize];
        *holders -= 1;
        self.held -= usize::from(*holders == 0);
    }

    /// Forgets all parts, because the store has no blocks any more.
    pub(super) fn clear(&mut self) {
        debug_assert_eq!(self.held, 0, "no part is held");
        self.holders.clear();
        self.there.clear();
        self.kept.clear();
        (self.made, self.spare) = (0, 0);
    }

    /// Returns the number of parts that blocks have.
    #[cfg(test)]
    pub(super) fn parts(&self) -> usize {
        self.made - self.spare
    }
}

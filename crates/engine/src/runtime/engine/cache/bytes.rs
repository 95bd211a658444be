//! Memory of a cache: what its blocks may take, what requests hold, and what can be had without preempting one.

use std::sync::atomic::Ordering;

use super::{Cache, TOKENS};
use crate::net::ops::{Backend, KvCache as _};
use crate::runtime::KvBlocks;

impl<O: Backend> Cache<O> {
    /// Returns the number of tokens that fit, if one request holds all.
    pub(in crate::runtime::engine) fn tokens(&self) -> usize {
        self.windows.largest(self.budget(), self.block_bytes) * TOKENS
    }

    /// Returns the maximum number of bytes of blocks.
    pub(super) fn budget(&self) -> usize {
        self.capacity * (self.block_bytes + self.windows.bytes())
    }

    /// Returns the number of blocks that have memory.
    pub(super) fn made_blocks(&self) -> usize {
        self.store.count() - self.bare.len()
    }

    /// Returns the number of blocks that requests hold.
    fn used_blocks(&self) -> usize {
        self.made_blocks() - self.free.len() - self.idle
    }

    /// Returns the bytes that can be had without preempting a request.
    fn available_bytes(&self) -> usize {
        let used = self.used_blocks() * self.block_bytes + self.windows.held_bytes();
        self.budget().saturating_sub(used)
    }

    /// Returns true if there is memory for `blocks` of one request, and `more` of others, without preempting a request.
    pub(in crate::runtime::engine) fn has_room(&self, blocks: usize, more: usize) -> bool {
        let whole = more * (self.block_bytes + self.windows.bytes());
        blocks * self.block_bytes + self.windows.bytes_of(blocks) + whole <= self.available_bytes()
    }

    /// Returns the number of blocks that can be allocated without preempting a request.
    pub(in crate::runtime::engine) fn available(&self) -> usize {
        self.available_bytes() / (self.block_bytes + self.windows.bytes())
    }

    /// Publishes the number of blocks in use, of cached prefixes alone, and free.
    pub(in crate::runtime::engine) fn count(&self, blocks: &KvBlocks) {
        let (idle, available) = (self.idle, self.available());
        blocks.used.store(self.used_blocks(), Ordering::Relaxed);
        blocks.cached.store(idle, Ordering::Relaxed);
        blocks.free.store(available.saturating_sub(idle), Ordering::Relaxed);
    }
}

//! Allocation of key-value blocks: reference counts, a capacity, and shared prefixes.
//!
//! A block has the keys and values of sixteen tokens. When no block is free, blocks that only prefix trees reference
//! are evicted, the least recently used first. If that is not enough, the youngest request is preempted. Neither
//! changes a result: by K-1, the number of cached tokens has no effect.

mod kept;

use std::sync::atomic::Ordering;

use super::prefix::{Inserted, NodeId, PrefixTree};
use super::states::{StatePlace, StateSlots};
use crate::files::{HfConfig, ModelError};
use crate::net::KvStore;
use crate::net::ops::{Backend, Cpu, KvCache as _};
use crate::runtime::KvBlocks;

const TOKENS: usize = KvStore::TOKENS;
/// Inverse of the minimum share of all blocks that one eviction frees, so that its cost is amortized.
const EVICT_SHARE: usize = 64;

/// Key-value cache of a worker group: the blocks of running requests, and cached prefixes for later ones.
pub(super) struct Cache<O: Backend = Cpu> {
    ops: O,
    pub(super) store: O::Kv,
    prefixes: PrefixTree,
    /// Maximum number of blocks.
    capacity: usize,
    /// Number of references to each block: by requests and by the prefix tree.
    refs: Vec<u32>,
    /// True for each block that the prefix tree references.
    cached: Vec<bool>,
    free: Vec<u32>,
    /// Number of blocks that only the prefix tree references.
    idle: usize,
    /// True if requests share prefixes.
    share: bool,
    /// States of recurrent layers.
    states: StateSlots,
}

/// Block table of a request: the blocks of its first `len` tokens.
#[derive(Debug)]
pub(super) struct BlockTable {
    pub(super) blocks: Vec<u32>,
    pub(super) len: usize,
    root: NodeId,
    /// Node of the last block that is in the prefix tree.
    node: NodeId,
    /// Number of blocks that are in the prefix tree.
    inserted: usize,
    /// Slot of states in recurrent layers.
    pub(super) state: Option<u32>,
    /// Number of tokens after which states are to be kept, where its prefix ended without a copy.
    split: Option<usize>,
}

impl BlockTable {
    /// Creates an empty table for a request of one policy.
    pub(super) fn nothing(policy: usize) -> Self {
        let (blocks, state, split) = (Vec::new(), None, None);
        Self { blocks, len: 0, root: policy, node: policy, inserted: 0, state, split }
    }

    /// Returns true if states are to be kept after the tokens that are computed.
    pub(super) fn is_split(&self) -> bool {
        self.split == Some(self.len)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the parent node and the tokens of the next block to insert; `None` if `tokens` do not fill it.
    pub(super) fn next_block(&self, tokens: &[u32]) -> Option<(NodeId, [u32; TOKENS])> {
        Some((self.node, *tokens.get(self.inserted * TOKENS..)?.first_chunk()?))
    }
}

impl<O: Backend> Cache<O> {
    /// Creates a cache of at most `bytes` for `policies` with one base. States of recurrent layers get half of them, and at
    /// least one slot.
    pub(super) fn new(
        ops: &O,
        config: &HfConfig,
        bytes: usize,
        share: bool,
        policies: usize,
    ) -> Self {
        let slot = ops.slot_bytes(config);
        let slots = (bytes / 2).checked_div(slot).map_or(0, |slots| slots.max(1));
        let capacity = bytes.saturating_sub(slots * slot) / ops.block_bytes(config);
        Self {
            ops: ops.clone(),
            store: ops.kv(config, capacity),
            capacity,
            prefixes: PrefixTree::new(policies),
            refs: Vec::new(),
            cached: Vec::new(),
            free: Vec::new(),
            idle: 0,
            share,
            states: StateSlots::new(slots),
        }
    }

    /// Returns the number of tokens that fit, if one request holds all.
    pub(super) fn tokens(&self) -> usize {
        self.capacity * TOKENS
    }

    /// Returns true if requests share prefixes.
    pub(super) fn shares(&self) -> bool {
        self.share
    }

    /// Returns the number of blocks that can be allocated without preempting a request.
    pub(super) fn available(&self) -> usize {
        self.capacity - self.store.count() + self.free.len() + self.idle
    }

    /// Publishes the number of blocks in use, of cached prefixes alone, and free.
    pub(super) fn count(&self, blocks: &KvBlocks) {
        let (idle, available) = (self.idle, self.available());
        blocks.used.store(self.capacity - available, Ordering::Relaxed);
        blocks.cached.store(idle, Ordering::Relaxed);
        blocks.free.store(available - idle, Ordering::Relaxed);
    }

    /// Returns the number of blocks that a request lacks for `tokens` tokens.
    pub(super) fn lacking(table: &BlockTable, tokens: usize) -> usize {
        tokens.div_ceil(TOKENS).saturating_sub(table.blocks.len())
    }

    /// Acquires the cached blocks of the prefix of `tokens`. The last token is always left to compute.
    pub(super) fn acquire_prefix(&mut self, table: &mut BlockTable, tokens: &[u32]) {
        let known = if self.share { (tokens.len() - 1) / TOKENS } else { 0 };
        for key in tokens.chunks_exact(TOKENS).take(known) {
            let Some((node, block)) = self.prefixes.child(table.node, key) else { return };
            self.retain(block);
            table.blocks.push(block);
            (table.node, table.inserted, table.len) =
                (node, table.inserted + 1, table.len + TOKENS);
        }
    }

    /// Copies the tokens that a cached block shares with the tokens after those of [`Cache::acquire_prefix`].
    pub(super) fn acquire_partial_block(
        &mut self,
        table: &mut BlockTable,
        tokens: &[u32],
    ) -> Result<(), ModelError> {
        let rest = &tokens[table.len..tokens.len() - 1];
        let rest = &rest[..rest.len().min(TOKENS)];
        if !self.share || rest.is_empty() {
            return Ok(());
        }
        let Some((block, agree)) = self.prefixes.nearest(table.node, rest) else { return Ok(()) };
        self.retain(block);
        let copied = self.copy_start(table, block, agree);
        self.release_block(block);
        copied
    }

    /// Gives a request a block of its own that begins with tokens of another, if one can be allocated.
    fn copy_start(
        &mut self,
        table: &mut BlockTable,
        block: u32,
        tokens: usize,
    ) -> Result<(), ModelError> {
        if let Some(own) = self.take(1)? {
            table.blocks.push(own);
            self.ops.copy_block(&mut self.store, [block, own], tokens)?;
            table.len += tokens;
        }
        Ok(())
    }

    /// Allocates blocks for the first `tokens` tokens of a request. Returns false, without any change, if there are not
    /// enough.
    pub(super) fn reserve(
        &mut self,
        table: &mut BlockTable,
        tokens: usize,
    ) -> Result<bool, ModelError> {
        let lacking = Self::lacking(table, tokens);
        if lacking > self.available() {
            return Ok(false);
        }
        for left in (1..=lacking).rev() {
            let block = self.take(left)?.expect("as many are available");
            table.blocks.push(block);
        }
        Ok(true)
    }

    /// Inserts the computed whole blocks of `tokens` into the prefix tree; with `part`, also the tokens in the last
    /// block. Returns the place of the last token that is inserted, if it is the last that is computed.
    pub(super) fn insert_prefix(
        &mut self,
        table: &mut BlockTable,
        tokens: &[u32],
        part: bool,
    ) -> Option<StatePlace> {
        if !self.share {
            return None;
        }
        while table.inserted < table.len / TOKENS {
            let at = table.inserted * TOKENS;
            table.node = self.insert(table, &tokens[at..at + TOKENS]);
            table.inserted += 1;
        }
        let at = table.inserted * TOKENS;
        if at == table.len {
            return (at > 0).then_some((table.node, TOKENS));
        }
        part.then(|| (self.insert(table, &tokens[at..table.len]), table.len - at))
    }

    /// Inserts all computed blocks of a request into the prefix tree, then releases them.
    pub(super) fn release(&mut self, table: &mut BlockTable, tokens: &[u32]) {
        let place = self.insert_prefix(table, tokens, true);
        self.keep_slot(table, place);
        self.drop_blocks(table);
    }

    /// Releases all blocks of a request, in whatever state the request is.
    pub(super) fn drop_blocks(&mut self, table: &mut BlockTable) {
        while let Some(block) = table.blocks.pop() {
            self.release_block(block);
        }
        (table.len, table.inserted, table.node) = (0, 0, table.root);
        table.split = None;
        self.keep_slot(table, None);
    }

    /// Drops every prefix of a policy. There must be no running requests: they would insert under its root again.
    pub(super) fn forget(&mut self, policy: usize) {
        let mut dropped = Vec::new();
        self.prefixes.clear(policy, |node, block| dropped.push((node, block)));
        dropped.into_iter().for_each(|(node, block)| self.drop_cached(node, block));
        if self.free.len() == self.store.count() {
            // An update follows, and needs the memory.
            self.store.clear();
            self.free.clear();
            self.refs.clear();
            self.cached.clear();
            self.states.clear();
        }
    }

    /// Inserts the next block of a request into the tree and returns its node. If the tree already has a block with the
    /// same tokens, the request uses that one: both are equal to the bit (K-1).
    fn insert(&mut self, table: &mut BlockTable, key: &[u32]) -> NodeId {
        let own = table.blocks[table.inserted];
        match self.prefixes.insert(table.node, key, own) {
            Inserted::There { node, block } => {
                if block != own && key.len() == TOKENS {
                    self.retain(block);
                    table.blocks[table.inserted] = block;
                    self.release_block(own);
                }
                node
            }
            Inserted::New { node, replaced } => {
                if let Some(replaced) = replaced {
                    self.drop_reference(replaced);
                }
                self.refs[own as usize] += 1;
                self.cached[own as usize] = true;
                node
            }
        }
    }

    /// Allocates a block: a free one, a new one, or an evicted one. `soon` is the number of blocks needed now.
    fn take(&mut self, soon: usize) -> Result<Option<u32>, ModelError> {
        if self.free.is_empty() && self.store.count() < self.capacity {
            let block = self.ops.add_block(&mut self.store)?;
            self.refs.push(0);
            self.cached.push(false);
            self.free.push(block);
        } else if self.free.is_empty() {
            self.evict(soon.max(self.capacity / EVICT_SHARE));
        }
        let Some(block) = self.free.pop() else { return Ok(None) };
        self.refs[block as usize] = 1;
        Ok(Some(block))
    }

    fn evict(&mut self, many: usize) {
        if self.idle == 0 {
            return;
        }
        let mut evicted = Vec::new();
        let refs = &self.refs;
        let idle = |block: u32| refs[block as usize] == 1;
        self.prefixes.evict(many, idle, |node, block| evicted.push((node, block)));
        evicted.into_iter().for_each(|(node, block)| self.drop_cached(node, block));
    }

    fn retain(&mut self, block: u32) {
        let refs = &mut self.refs[block as usize];
        self.idle -= usize::from(self.cached[block as usize] && *refs == 1);
        *refs += 1;
    }

    fn release_block(&mut self, block: u32) {
        let refs = &mut self.refs[block as usize];
        *refs -= 1;
        if *refs == 0 {
            self.free.push(block);
        }
        self.idle += usize::from(self.cached[block as usize] && *refs == 1);
    }

    /// Removes what the tree referenced by a node that left it.
    fn drop_cached(&mut self, node: NodeId, block: u32) {
        self.states.drop_node(node);
        self.drop_reference(block);
    }

    /// Removes the tree's reference to a block.
    fn drop_reference(&mut self, block: u32) {
        let refs = &mut self.refs[block as usize];
        self.idle -= usize::from(*refs == 1);
        self.cached[block as usize] = false;
        *refs -= 1;
        if *refs == 0 {
            self.free.push(block);
        }
    }
}

#[cfg(test)]
mod tests;

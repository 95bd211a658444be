//! Allocation of key-value blocks: reference counts, a capacity, and shared prefixes.
//!
//! A block has the keys and values of sixteen tokens. When no block is free, blocks that only prefix trees reference
//! are evicted, the least recently used first. If that is not enough, the youngest request is preempted. Neither
//! changes a result: by K-1, the number of cached tokens has no effect.

mod bytes;
mod kept;
mod windows;

use super::prefix::{Inserted, NodeId, PrefixTree};
use super::states::{StatePlace, StateSlots};
use super::windows::Windows;
use crate::files::{HfConfig, ModelError};
use crate::net::KvStore;
use crate::net::ops::{Backend, Cpu, KvCache as _};

const TOKENS: usize = KvStore::TOKENS;
/// Inverse of the minimum share of all blocks that one eviction frees, so that its cost is amortized.
const EVICT_SHARE: usize = 64;

/// Key-value cache of a worker group: the blocks of running requests, and cached prefixes for later ones.
pub(super) struct Cache<O: Backend = Cpu> {
    ops: O,
    pub(super) store: O::Kv,
    prefixes: PrefixTree,
    /// Maximum number of blocks, if all have parts for layers with a window.
    capacity: usize,
    /// Bytes of a block without this part.
    block_bytes: usize,
    /// Number of references to each block: by requests and by the prefix tree.
    refs: Vec<u32>,
    /// True for each block that the prefix tree references.
    cached: Vec<bool>,
    free: Vec<u32>,
    /// Numbers of blocks without memory.
    bare: Vec<u32>,
    /// Number of blocks that only the prefix tree references.
    idle: usize,
    /// True if requests share prefixes.
    share: bool,
    /// States of recurrent layers.
    states: StateSlots,
    /// Parts of blocks for layers with a window.
    windows: Windows,
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
    /// Number of tokens after which states, or parts of blocks for layers with a window, are to be kept, where its prefix ended
    /// without them.
    split: Option<usize>,
    /// Index of the first block whose part for layers with a window it holds.
    window: usize,
}

impl BlockTable {
    /// Creates an empty table for a request of one policy.
    pub(super) fn nothing(policy: usize) -> Self {
        let (blocks, state, split) = (Vec::new(), None, None);
        Self { blocks, len: 0, root: policy, node: policy, inserted: 0, state, split, window: 0 }
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
    /// Creates a cache of at most `bytes` for `policies` with one base, and passes of at most `pass` tokens of prompts. States of
    /// recurrent layers get half of the bytes, and at least one slot.
    pub(super) fn new(
        ops: &O,
        config: &HfConfig,
        bytes: usize,
        share: bool,
        policies: usize,
        pass: usize,
    ) -> Self {
        let slot = ops.slot_bytes(config);
        let slots = (bytes / 2).checked_div(slot).map_or(0, |slots| slots.max(1));
        let windows = Windows::new(config, ops.window_bytes(config), pass);
        let block_bytes = windows.other_bytes(ops.block_bytes(config));
        let capacity = bytes.saturating_sub(slots * slot) / (block_bytes + windows.bytes());
        Self {
            block_bytes,
            bare: Vec::new(),
            windows,
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

    /// Returns true if requests share prefixes.
    pub(super) fn shares(&self) -> bool {
        self.share
    }

    /// Returns the number of blocks that a request lacks for `tokens` tokens.
    pub(super) fn lacking(table: &BlockTable, tokens: usize) -> usize {
        tokens.div_ceil(TOKENS).saturating_sub(table.blocks.len())
    }

    /// Acquires the cached blocks of the prefix of `tokens`. The last token is always left to compute.
    pub(super) fn acquire_prefix(&mut self, table: &mut BlockTable, tokens: &[u32]) {
        self.acquire_blocks(table, tokens);
        self.trim_to_window(table);
    }

    /// Acquires the blocks of [`Cache::acquire_prefix`] before a window is searched.
    fn acquire_blocks(&mut self, table: &mut BlockTable, tokens: &[u32]) {
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
        let nearest = self.prefixes.nearest(table.node, rest);
        let Some((block, agree)) = nearest.filter(|(block, _)| self.has_window(*block)) else {
            return Ok(());
        };
        self.retain(block);
        self.hold_window(block);
        let copied = self.copy_start(table, block, agree);
        self.let_go_window(block);
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
        self.let_go_all(table);
        while let Some(block) = table.blocks.pop() {
            self.release_block(block);
        }
        (table.len, table.inserted, table.node) = (0, 0, table.root);
        (table.split, table.window) = (None, 0);
        self.keep_slot(table, None);
    }

    /// Drops every prefix of a policy. There must be no running requests: they would insert under its root again.
    pub(super) fn forget(&mut self, policy: usize) {
        let mut dropped = Vec::new();
        self.prefixes.clear(policy, |node, block| dropped.push((node, block)));
        dropped.into_iter().for_each(|(node, block)| self.drop_cached(node, block));
        if self.free.len() == self.made_blocks() {
            // An update follows, and needs the memory.
            self.store.clear();
            self.clear_windows();
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
                    self.exchange_window(table, [own, block]);
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
        if !self.make_room(soon) {
            return Ok(None);
        }
        let block = match self.free.pop() {
            Some(block) => block,
            None => self.add_block()?,
        };
        self.refs[block as usize] = 1;
        self.fill_window(block);
        Ok(Some(block))
    }

    /// Evicts prefixes with at least so many blocks, or some more. Returns false if there are none.
    fn evict(&mut self, soon: usize) -> bool {
        if self.idle == 0 {
            return false;
        }
        let (mut evicted, many) = (Vec::new(), soon.max(self.capacity / EVICT_SHARE));
        let refs = &self.refs;
        let idle = |block: u32| refs[block as usize] == 1;
        self.prefixes.evict(many, idle, |node, block| evicted.push((node, block)));
        let any = !evicted.is_empty();
        evicted.into_iter().for_each(|(node, block)| self.drop_cached(node, block));
        any
    }

    fn retain(&mut self, block: u32) {
        let refs = &mut self.refs[block as usize];
        self.idle -= usize::from(self.cached[block as usize] && *refs == 1);
        *refs += 1;
    }

    fn release_block(&mut self, block: u32) {
        let refs = &mut self.refs[block as usize];
        *refs -= 1;
        let (unused, idle) = (*refs == 0, self.cached[block as usize] && *refs == 1);
        if unused {
            self.free_block(block);
        }
        self.idle += usize::from(idle);
    }

    /// Frees a block that nobody references.
    fn free_block(&mut self, block: u32) {
        self.free_window(block);
        self.free.push(block);
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
            self.free_block(block);
        }
    }
}

#[cfg(test)]
mod tests;

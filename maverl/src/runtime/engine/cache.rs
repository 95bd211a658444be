//! Who holds which block of keys and values: reference counts, a bound, and prefixes that are computed once.

use super::prefix::{Inserted, NodeId, Prefixes};
use crate::model::{HfConfig, KvStore};

const TOKENS: usize = KvStore::TOKENS;
/// A search for blocks to evict frees this share of all blocks at least, so that its cost is spread.
const EVICT_SHARE: usize = 64;

/// The keys and values of a worker group: those of requests under way, and of prefixes that later ones may begin with.
pub(super) struct Cache {
    pub(super) store: KvStore,
    prefixes: Prefixes,
    /// Most blocks there may be.
    capacity: usize,
    /// How many requests, and the tree of prefixes, hold each block.
    refs: Vec<u32>,
    /// Whether the tree holds each block.
    cached: Vec<bool>,
    free: Vec<u32>,
    /// Blocks that only the tree holds.
    idle: usize,
    /// Whether requests share prefixes.
    share: bool,
}

/// What a request holds: blocks with its first `len` tokens.
#[derive(Debug)]
pub(super) struct BlockTable {
    pub(super) blocks: Vec<u32>,
    pub(super) len: usize,
    root: NodeId,
    /// The node of the last block that the tree has.
    node: NodeId,
    /// Blocks that the tree has.
    inserted: usize,
}

impl BlockTable {
    /// Nothing, of one policy.
    pub(super) fn nothing(policy: usize) -> Self {
        Self { blocks: Vec::new(), len: 0, root: policy, node: policy, inserted: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Where in the tree the next block comes, and its tokens; `None` if so many `tokens` do not fill it.
    pub(super) fn next_block(&self, tokens: &[u32]) -> Option<(NodeId, [u32; TOKENS])> {
        Some((self.node, *tokens.get(self.inserted * TOKENS..)?.first_chunk()?))
    }
}

impl Cache {
    /// At most `bytes` of keys and values for `policies` with one base.
    pub(super) fn new(config: &HfConfig, bytes: usize, share: bool, policies: usize) -> Self {
        let store = KvStore::new(config);
        Self {
            capacity: bytes / store.block_bytes(),
            store,
            prefixes: Prefixes::new(policies),
            refs: Vec::new(),
            cached: Vec::new(),
            free: Vec::new(),
            idle: 0,
            share,
        }
    }

    /// Tokens that fit, if one request holds all.
    pub(super) fn tokens(&self) -> usize {
        self.capacity * TOKENS
    }

    /// Whether requests share prefixes.
    pub(super) fn shares(&self) -> bool {
        self.share
    }

    /// Blocks that can be had without taking any from a request.
    pub(super) fn available(&self) -> usize {
        self.capacity - self.store.len() + self.free.len() + self.idle
    }

    /// Blocks that a request lacks for so many tokens.
    pub(super) fn lacking(table: &BlockTable, tokens: usize) -> usize {
        tokens.div_ceil(TOKENS).saturating_sub(table.blocks.len())
    }

    /// Takes over whole blocks that begin `tokens`; the last token is always left to compute.
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

    /// Copies what a block shares with the tokens after those of a [`Cache::acquire_prefix`].
    pub(super) fn acquire_partial_block(&mut self, table: &mut BlockTable, tokens: &[u32]) {
        let rest = &tokens[table.len..tokens.len() - 1];
        let rest = &rest[..rest.len().min(TOKENS)];
        if !self.share || rest.is_empty() {
            return;
        }
        let Some((block, agree)) = self.prefixes.nearest(table.node, rest) else { return };
        self.retain(block);
        if let Some(own) = self.take(1) {
            self.store.copy(block, own, agree);
            table.blocks.push(own);
            table.len += agree;
        }
        self.release_block(block);
    }

    /// Gets room for the first `tokens` tokens of a request; false, and nothing changed, if there is none.
    pub(super) fn reserve(&mut self, table: &mut BlockTable, tokens: usize) -> bool {
        let lacking = Self::lacking(table, tokens);
        if lacking > self.available() {
            return false;
        }
        for left in (1..=lacking).rev() {
            let block = self.take(left).expect("as many are available");
            table.blocks.push(block);
        }
        true
    }

    /// Lets later requests begin with the whole blocks of `tokens` that a request has computed; with `part`, also with the
    /// tokens in its last block.
    pub(super) fn insert_prefix(&mut self, table: &mut BlockTable, tokens: &[u32], part: bool) {
        if !self.share {
            return;
        }
        while table.inserted < table.len / TOKENS {
            let at = table.inserted * TOKENS;
            table.node = self.insert(table, &tokens[at..at + TOKENS]);
            table.inserted += 1;
        }
        let at = table.inserted * TOKENS;
        if part && at < table.len {
            self.insert(table, &tokens[at..table.len]);
        }
    }

    /// Publishes all that a request has computed of `tokens`, and lets go of it.
    pub(super) fn release(&mut self, table: &mut BlockTable, tokens: &[u32]) {
        self.insert_prefix(table, tokens, true);
        self.drop_blocks(table);
    }

    /// Lets go of everything that a request holds, in whatever state that is.
    pub(super) fn drop_blocks(&mut self, table: &mut BlockTable) {
        while let Some(block) = table.blocks.pop() {
            self.release_block(block);
        }
        (table.len, table.inserted, table.node) = (0, 0, table.root);
    }

    /// Drops every prefix of a policy. Requests under way would go on to publish under it, so there must be none.
    pub(super) fn forget(&mut self, policy: usize) {
        let mut dropped = Vec::new();
        self.prefixes.clear(policy, |block| dropped.push(block));
        dropped.into_iter().for_each(|block| self.drop_cached(block));
        if self.free.len() == self.store.len() {
            // An update is what comes next, and wants the memory.
            self.store.clear();
            self.free.clear();
            self.refs.clear();
            self.cached.clear();
        }
    }

    /// Puts the next block of a request into the tree; returns its node. Of two blocks with the same tokens the tree's
    /// own stays: they are equal to the bit (K-1).
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
                    self.drop_cached(replaced);
                }
                self.refs[own as usize] += 1;
                self.cached[own as usize] = true;
                node
            }
        }
    }

    /// A block of one's own: a free one, a new one, or one of a prefix that nobody holds. `soon` are needed now.
    fn take(&mut self, soon: usize) -> Option<u32> {
        if self.free.is_empty() && self.store.len() < self.capacity {
            self.refs.push(0);
            self.cached.push(false);
            let block = self.store.add();
            self.free.push(block);
        } else if self.free.is_empty() {
            self.evict(soon.max(self.capacity / EVICT_SHARE));
        }
        let block = self.free.pop()?;
        self.refs[block as usize] = 1;
        Some(block)
    }

    fn evict(&mut self, many: usize) {
        if self.idle == 0 {
            return;
        }
        let mut evicted = Vec::new();
        let refs = &self.refs;
        self.prefixes.evict(many, |block| refs[block as usize] == 1, |block| evicted.push(block));
        evicted.into_iter().for_each(|block| self.drop_cached(block));
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

    /// The tree lets go of a block.
    fn drop_cached(&mut self, block: u32) {
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

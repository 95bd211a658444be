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
pub(super) struct Held {
    pub(super) blocks: Vec<u32>,
    pub(super) len: usize,
    root: NodeId,
    /// The node of the last block that the tree has.
    node: NodeId,
    /// Blocks that the tree has.
    published: usize,
}

impl Held {
    /// Nothing, of one policy.
    pub(super) fn nothing(policy: usize) -> Self {
        Self { blocks: Vec::new(), len: 0, root: policy, node: policy, published: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Where in the tree the next block comes, and its tokens; `None` if so many `tokens` do not fill it.
    pub(super) fn next_block(&self, tokens: &[u32]) -> Option<(NodeId, [u32; TOKENS])> {
        Some((self.node, *tokens.get(self.published * TOKENS..)?.first_chunk()?))
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
    pub(super) fn lacking(held: &Held, tokens: usize) -> usize {
        tokens.div_ceil(TOKENS).saturating_sub(held.blocks.len())
    }

    /// Takes over whole blocks that begin `tokens`; the last token is always left to compute.
    pub(super) fn join(&mut self, held: &mut Held, tokens: &[u32]) {
        let known = if self.share { (tokens.len() - 1) / TOKENS } else { 0 };
        for key in tokens.chunks_exact(TOKENS).take(known) {
            let Some((node, block)) = self.prefixes.child(held.node, key) else { return };
            self.retain(block);
            held.blocks.push(block);
            (held.node, held.published, held.len) = (node, held.published + 1, held.len + TOKENS);
        }
    }

    /// Copies what a block shares with the tokens after those of a [`Cache::join`].
    pub(super) fn join_part(&mut self, held: &mut Held, tokens: &[u32]) {
        let rest = &tokens[held.len..tokens.len() - 1];
        let rest = &rest[..rest.len().min(TOKENS)];
        if !self.share || rest.is_empty() {
            return;
        }
        let Some((block, agree)) = self.prefixes.nearest(held.node, rest) else { return };
        self.retain(block);
        if let Some(own) = self.take(1) {
            self.store.copy(block, own, agree);
            held.blocks.push(own);
            held.len += agree;
        }
        self.release(block);
    }

    /// Gets room for the first `tokens` tokens of a request; false, and nothing changed, if there is none.
    pub(super) fn reserve(&mut self, held: &mut Held, tokens: usize) -> bool {
        let lacking = Self::lacking(held, tokens);
        if lacking > self.available() {
            return false;
        }
        for left in (1..=lacking).rev() {
            let block = self.take(left).expect("as many are available");
            held.blocks.push(block);
        }
        true
    }

    /// Lets later requests begin with the whole blocks of `tokens` that a request has computed; with `part`, also with the
    /// tokens in its last block.
    pub(super) fn publish(&mut self, held: &mut Held, tokens: &[u32], part: bool) {
        if !self.share {
            return;
        }
        while held.published < held.len / TOKENS {
            let at = held.published * TOKENS;
            held.node = self.insert(held, &tokens[at..at + TOKENS]);
            held.published += 1;
        }
        let at = held.published * TOKENS;
        if part && at < held.len {
            self.insert(held, &tokens[at..held.len]);
        }
    }

    /// Publishes all that a request has computed of `tokens`, and lets go of it.
    pub(super) fn leave(&mut self, held: &mut Held, tokens: &[u32]) {
        self.publish(held, tokens, true);
        self.let_go(held);
    }

    /// Lets go of everything that a request holds, in whatever state that is.
    pub(super) fn let_go(&mut self, held: &mut Held) {
        while let Some(block) = held.blocks.pop() {
            self.release(block);
        }
        (held.len, held.published, held.node) = (0, 0, held.root);
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
    fn insert(&mut self, held: &mut Held, key: &[u32]) -> NodeId {
        let own = held.blocks[held.published];
        match self.prefixes.insert(held.node, key, own) {
            Inserted::There { node, block } => {
                if block != own && key.len() == TOKENS {
                    self.retain(block);
                    held.blocks[held.published] = block;
                    self.release(own);
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

    fn release(&mut self, block: u32) {
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

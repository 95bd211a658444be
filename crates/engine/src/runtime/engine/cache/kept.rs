//! States of recurrent layers: a slot for each running request, and copies for prefixes.
//!
//! Keys and values of a prefix are those of its tokens, but a state is that after its last token. The prefix tree therefore
//! keeps copies of states: at the end of each prompt but its last token, where a group goes on; at the end of each request,
//! where a conversation goes on; and where the prefix of a request ends that was found without a copy. A request starts at the
//! last copy within its prefix, and computes the rest. Copies are dropped in LRU order. None changes a result (K-1).

use super::{BlockTable, Cache, TOKENS};
use crate::files::ModelError;
use crate::net::ops::Backend;
use crate::runtime::engine::prefix::NodeId;
use crate::runtime::engine::states::StatePlace;

impl<O: Backend> Cache<O> {
    /// Returns true if the model has recurrent layers.
    pub(in crate::runtime::engine) fn has_states(&self) -> bool {
        self.states.capacity > 0
    }

    /// Returns true if another request can have a slot.
    pub(in crate::runtime::engine) fn has_slot(&self) -> bool {
        !self.has_states() || self.states.has_room()
    }

    /// Returns the number of the next tokens of a request that its pass may have: it ends where states are to be kept. The
    /// last token of a prompt is computed alone, because requests with the same prompt go on before it.
    pub(in crate::runtime::engine) fn until_kept(
        &self,
        table: &BlockTable,
        uncached: usize,
        next: usize,
    ) -> usize {
        if !self.has_states() || !self.share {
            return next;
        }
        let split = table.split.filter(|split| *split > table.len);
        next.min(split.map_or(usize::MAX, |split| split - table.len)).min((uncached - 1).max(1))
    }

    /// Releases the blocks behind the last copy of states within the prefix of `tokens` that a request has acquired. Returns
    /// the copy.
    pub(in crate::runtime::engine) fn trim_to_state(
        &mut self,
        table: &mut BlockTable,
        tokens: &[u32],
    ) -> Option<StatePlace> {
        if !self.has_states() || !self.share {
            return None;
        }
        let (mut node, mut level) = (table.node, table.inserted);
        let (matched, mut found) = self.search_level(node, level, tokens);
        while found.is_none() && level > 0 {
            (node, level) = (self.prefixes.parent(node), level - 1);
            found = self.search_level(node, level, tokens).1;
        }
        let kept = found.map_or(0, |(_, own)| level * TOKENS + own);
        table.split = (matched > kept).then_some(matched);
        for block in table.blocks.split_off(level) {
            self.release_block(block);
        }
        (table.node, table.inserted, table.len) = (node, level, level * TOKENS);
        found
    }

    /// Searches the blocks after a node for the last copy within `tokens`. Also returns the length of the longest prefix that
    /// ends in one of them. The last token is always left to compute.
    fn search_level(
        &self,
        node: NodeId,
        level: usize,
        tokens: &[u32],
    ) -> (usize, Option<StatePlace>) {
        let start = level * TOKENS;
        let rest = &tokens[start..tokens.len() - 1];
        let rest = &rest[..rest.len().min(TOKENS)];
        let (mut longest, mut found) = (0, None);
        for (child, agree) in self.prefixes.children_like(node, rest) {
            longest = longest.max(agree);
            let last = self.states.last_at(child, agree).filter(|_| agree > 0);
            found = found.max(last.map(|(node, own)| (own, node)));
        }
        (start + longest, found.map(|(own, node)| (node, own)))
    }

    /// Gives a request a slot of states: a copy of those after its prefix, with the block in which the prefix ends, or those
    /// before the first token.
    pub(in crate::runtime::engine) fn start_states(
        &mut self,
        table: &mut BlockTable,
        kept: Option<StatePlace>,
    ) -> Result<(), ModelError> {
        if !self.has_states() {
            return Ok(());
        }
        let slot = match table.state {
            Some(slot) => slot,
            None => self.take_slot(kept)?,
        };
        table.state = Some(slot);
        if let Some((place, from)) = kept.and_then(|place| Some((place, self.states.touch(place)?)))
        {
            self.ops.copy_slot(&mut self.store, [from, slot])?;
            self.acquire_end(table, place)?;
            if table.len % TOKENS == place.1 % TOKENS {
                return Ok(());
            }
        }
        // There is no copy, or no block for the end of the prefix.
        while let Some(block) = table.blocks.pop() {
            self.release_block(block);
        }
        (table.len, table.inserted, table.node) = (0, 0, table.root);
        self.ops.reset_slot(&mut self.store, slot)
    }

    /// Acquires the tokens of the block in which a prefix ends.
    fn acquire_end(
        &mut self,
        table: &mut BlockTable,
        (node, own): StatePlace,
    ) -> Result<(), ModelError> {
        let block = self.prefixes.block(node);
        self.retain(block);
        if own == TOKENS {
            table.blocks.push(block);
            (table.node, table.inserted, table.len) =
                (node, table.inserted + 1, table.len + TOKENS);
            return Ok(());
        }
        let copied = self.copy_start(table, block, own);
        self.release_block(block);
        copied
    }

    /// Keeps a copy of the states of a request after the tokens that it has computed.
    pub(in crate::runtime::engine) fn keep_copy(
        &mut self,
        table: &BlockTable,
        place: Option<StatePlace>,
    ) -> Result<(), ModelError> {
        let (Some(place), Some(live)) = (place, table.state) else { return Ok(()) };
        if self.states.touch(place).is_none()
            && let Some(slot) = self.free_slot(None)?
        {
            self.ops.copy_slot(&mut self.store, [live, slot])?;
            self.states.keep(place, slot);
        }
        Ok(())
    }

    /// Keeps the states of a request that ends, or frees their slot.
    pub(super) fn keep_slot(&mut self, table: &mut BlockTable, place: Option<StatePlace>) {
        match (table.state.take(), place) {
            (Some(slot), Some(place)) if self.share => self.states.keep(place, slot),
            (slot, _) => self.states.free.extend(slot),
        }
    }

    /// Allocates the slot of a request, for which [`Cache::has_slot`] is true or no other request has one. The copy with which
    /// it starts is dropped only if there is no other slot.
    fn take_slot(&mut self, start: Option<StatePlace>) -> Result<u32, ModelError> {
        let slot = match self.free_slot(start)? {
            None => self.free_slot(None)?,
            slot => slot,
        };
        Ok(slot.expect("no request has this slot"))
    }

    /// Allocates a slot, if there is one: a free one, a new one, or that of the copy that was not used for longest, but for one.
    fn free_slot(&mut self, except: Option<StatePlace>) -> Result<Option<u32>, ModelError> {
        if self.states.free.is_empty() && self.states.made < self.states.capacity {
            self.states.made += 1;
            return self.ops.add_slot(&mut self.store).map(Some);
        }
        if self.states.free.is_empty() {
            self.states.evict(except);
        }
        Ok(self.states.free.pop())
    }
}

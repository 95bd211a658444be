//! Windows of attention: parts of blocks that layers with a window read, and their memory.
//!
//! A layer with a window reads no key or value before the window of the next token, so a request holds these parts of its last
//! blocks alone. When the window leaves a block, its part is taken from it, unless later requests may go on there: at the end of
//! each prompt but its last token, where a group goes on, and where a prefix ended that was found without parts. The parts of
//! the last window of a request that ends stay, too: there a conversation goes on. A request starts after the last block of its
//! prefix before which a whole window is there, and computes the rest. Parts that no request holds are taken when memory is
//! needed, after whole blocks. None changes a result (K-1).
//!
//! Memory is counted in bytes: blocks and parts may have any ratio.

use super::{BlockTable, Cache, TOKENS};
use crate::files::ModelError;
use crate::net::ops::{Backend, KvCache as _};
use crate::runtime::engine::windows::Windows;

impl<O: Backend> Cache<O> {
    /// Releases the blocks of an acquired prefix behind the last whole window, and holds the parts of this window.
    pub(super) fn trim_to_window(&mut self, table: &mut BlockTable) {
        if !self.windows.exist() {
            return;
        }
        let (matched, level) = (table.blocks.len(), self.windows.covered(&table.blocks));
        for block in table.blocks.split_off(level) {
            self.release_block(block);
            table.node = self.prefixes.parent(table.node);
        }
        table.split = (matched > level).then_some(matched * TOKENS);
        (table.inserted, table.len) = (level, level * TOKENS);
        table.window = self.windows.first_block(table.len).min(level);
        for &block in &table.blocks[table.window..] {
            self.windows.hold(block);
        }
    }

    /// Returns true if the tokens of a block can be copied.
    pub(super) fn has_window(&self, block: u32) -> bool {
        !self.windows.exist() || self.windows.there[block as usize]
    }

    /// Keeps the part of a block while it is copied.
    pub(super) fn hold_window(&mut self, block: u32) {
        if self.windows.exist() {
            self.windows.hold(block);
        }
    }

    /// Ends the hold of a request on the part of a block, which stays there for others.
    pub(super) fn let_go_window(&mut self, block: u32) {
        if self.windows.exist() {
            self.windows.let_go(block);
        }
    }

    /// Ends the holds of a request that ends. The parts stay there, as the last of use.
    pub(super) fn let_go_all(&mut self, table: &BlockTable) {
        if self.windows.exist() {
            let last = table.window.min(table.blocks.len());
            self.windows.keep(&table.blocks[last..]);
            for &block in &table.blocks[last..] {
                self.windows.let_go(block);
            }
        }
    }

    /// Moves the hold of a request, and the part where it is missing, from its own block to one with the same tokens.
    pub(super) fn exchange_window(&mut self, table: &BlockTable, [own, other]: [u32; 2]) {
        if !self.windows.exist() || table.inserted < table.window {
            return;
        }
        self.windows.let_go(own);
        if !self.windows.there[other as usize] {
            self.store.move_window([own, other]);
            self.windows.there[own as usize] = false;
            self.windows.there[other as usize] = true;
        }
        self.windows.hold(other);
    }

    /// Moves the window of a request, which has sampled so many tokens, to those that it has computed. Parts that it leaves are
    /// taken, but for those where later requests may go on. While it computes its prompt they stay: requests with the same one
    /// wait for it. `end` is true if its prompt was computed last.
    pub(in crate::runtime::engine) fn move_window(
        &mut self,
        table: &mut BlockTable,
        sampled: usize,
        end: bool,
    ) {
        if !self.windows.exist() {
            return;
        }
        if end {
            let first = self.windows.first_block(table.len - 1).min(table.blocks.len());
            self.windows.keep(&table.blocks[first..]);
        }
        if let Some(split) = table.split.take_if(|split| *split <= table.len) {
            let last = split.div_ceil(TOKENS);
            let first = self.windows.first_block(split).max(table.window).min(last);
            self.windows.keep(&table.blocks[first..last]);
        }
        let before = table.window;
        let first = self.windows.first_block(table.len).min(table.blocks.len()).max(before);
        for &block in &table.blocks[before..first] {
            self.windows.let_go(block);
        }
        table.window = first;
        if sampled > 0 {
            for &block in &table.blocks[if end { 0 } else { before }..first] {
                self.take_unused(block);
            }
        }
    }

    /// Takes the part of a block, unless a request holds it or later ones may go on there.
    fn take_unused(&mut self, block: u32) {
        let at = block as usize;
        let kept = self.windows.kept[at].is_some() && self.cached[at];
        if self.windows.holders[at] == 0 && !kept {
            self.take_window(block);
        }
    }

    /// Takes the part of a block that no request holds.
    fn take_window(&mut self, block: u32) {
        let there = std::mem::replace(&mut self.windows.there[block as usize], false);
        self.windows.kept[block as usize] = None;
        if there {
            self.store.take_window(block);
            self.windows.spare += 1;
        }
    }

    /// Takes the part of a block that becomes free.
    pub(super) fn free_window(&mut self, block: u32) {
        if self.windows.exist() {
            debug_assert_eq!(self.windows.holders[block as usize], 0, "nobody has this block");
            self.take_window(block);
        }
    }

    /// Counts a new block, with its part.
    pub(super) fn add_window(&mut self) {
        if self.windows.exist() {
            self.windows.holders.push(0);
            self.windows.there.push(true);
            self.windows.kept.push(None);
            match self.windows.spare.checked_sub(1) {
                Some(spare) => self.windows.spare = spare,
                None => self.windows.made += 1,
            }
        }
    }

    /// Gives a block without a part one for its first request, for which there is memory, and holds it.
    pub(super) fn fill_window(&mut self, block: u32) {
        if !self.windows.exist() {
            return;
        }
        if !self.windows.there[block as usize] {
            self.store.fill_window(block);
            self.windows.there[block as usize] = true;
            match self.windows.spare.checked_sub(1) {
                Some(spare) => self.windows.spare = spare,
                None => self.windows.made += 1,
            }
        }
        self.windows.hold(block);
    }

    /// Forgets all parts.
    pub(super) fn clear_windows(&mut self) {
        self.windows.clear();
        self.bare.clear();
    }

    /// Makes room for a block with its part, of `soon` that are needed now: frees memory that is not in use, then evicts
    /// prefixes, then takes parts that no request holds. Returns false if there is none.
    pub(super) fn make_room(&mut self, soon: usize) -> bool {
        loop {
            let other = if self.free.is_empty() { self.block_bytes } else { 0 };
            let part = if self.windows.spare == 0 { self.windows.bytes() } else { 0 };
            let made = self.made_blocks() * self.block_bytes + self.windows.made_bytes();
            if made + other + part <= self.budget() {
                return true;
            }
            if !self.free_unused() && !self.evict(soon) && !self.take_oldest(soon) {
                return false;
            }
        }
    }

    /// Frees the memory of one spare part or free block if there are more of them than are needed, and none of the other.
    fn free_unused(&mut self) -> bool {
        match (self.free.len(), self.windows.spare) {
            (0, 2..) => {
                self.store.free_window();
                (self.windows.spare, self.windows.made) =
                    (self.windows.spare - 1, self.windows.made - 1);
                true
            }
            (2.., 0) if self.windows.exist() => {
                let block = self.free.pop().expect("two free blocks");
                self.store.free_block(block);
                self.bare.push(block);
                true
            }
            _ => false,
        }
    }

    /// Takes parts that no request holds, those first that were not of use for longest. Returns false if there are none.
    fn take_oldest(&mut self, many: usize) -> bool {
        let Windows { holders, there, kept, .. } = &self.windows;
        let blocks = (0..there.len()).filter(|&block| there[block] && holders[block] == 0);
        let mut blocks: Vec<(Option<u64>, usize)> =
            blocks.map(|block| (kept[block], block)).collect();
        blocks.sort_unstable();
        blocks.truncate(many.max(blocks.len() / super::EVICT_SHARE));
        for (_, block) in &blocks {
            self.take_window(*block as u32);
        }
        !blocks.is_empty()
    }

    /// Allocates a new block with its part, for which there is room.
    pub(super) fn add_block(&mut self) -> Result<u32, ModelError> {
        if let Some(block) = self.bare.pop() {
            self.store.restore_block(block);
            return Ok(block);
        }
        let block = self.ops.add_block(&mut self.store)?;
        self.refs.push(0);
        self.cached.push(false);
        self.add_window();
        Ok(block)
    }
}

#[cfg(test)]
impl Windows {
    /// Asserts that parts are held by these tables, and that none is lost.
    pub(super) fn check(&self, tables: &[&BlockTable], free: &[u32]) {
        if !self.exist() {
            return;
        }
        let mut holders = vec![0; self.there.len()];
        for table in tables {
            for &block in table.blocks.iter().skip(table.window) {
                holders[block as usize] += 1;
            }
        }
        assert_eq!(holders, self.holders, "holders of parts");
        assert_eq!(self.held, holders.iter().filter(|count| **count > 0).count(), "held parts");
        let there = self.there.iter().filter(|there| **there).count();
        assert_eq!(self.made, there + self.spare, "parts");
        let held = holders.iter().zip(&self.there).filter(|(count, _)| **count > 0);
        assert!(held.into_iter().all(|(_, there)| *there), "a part that is held is missing");
        assert!(free.iter().all(|block| !self.there[*block as usize]), "a free block has a part");
    }
}

//! Parts of blocks that layers with a window read. Such a layer reads no key or value before the window of a sequence's next
//! token, so the part of a block before it can be taken from the block, and given to another.

use maverl_kernels::attention::CacheBlock;

use super::KvStore;
use crate::files::HfConfig;
use crate::files::parts::LayerShape;

impl HfConfig {
    /// Returns the number of keys that a token sees in the layers whose windows shorten the cache: that of the widest. Caches
    /// with states keep all keys, because no family has both.
    pub fn evicted_window(&self) -> Option<usize> {
        let windows = self.layers.iter().filter_map(|layer| layer.window());
        let shortens = |window: &usize| *window < self.max_position_embeddings;
        windows.max().filter(shortens).filter(|_| !self.is_recurrent())
    }
}

impl LayerShape {
    /// Returns the number of keys of the window of its attention, if there is one.
    pub fn window(&self) -> Option<usize> {
        let scores = self.mixer.attention()?.heads.scores;
        scores.window.map(|window| window.get() as usize)
    }
}

impl KvStore {
    /// Gives a block a part for layers with a window: one that was taken from another, or a new one.
    ///
    /// # Panics
    ///
    /// If the block does not exist.
    pub fn fill_window(&mut self, block: u32) {
        let [_, numbers] = self.numbers();
        let part = self.spare.pop().unwrap_or_else(|| CacheBlock::new(numbers));
        self.windows[block as usize] = part;
    }

    /// Takes the part for layers with a window from a block, for another.
    ///
    /// # Panics
    ///
    /// If the block does not exist.
    pub fn take_window(&mut self, block: u32) {
        self.spare.push(std::mem::take(&mut self.windows[block as usize]));
    }

    /// Moves the part for layers with a window from one block to another, which has none.
    ///
    /// # Panics
    ///
    /// If a block does not exist.
    pub fn move_window(&mut self, [from, to]: [u32; 2]) {
        self.windows[to as usize] = std::mem::take(&mut self.windows[from as usize]);
    }

    /// Frees the memory of a part that was taken.
    pub fn free_window(&mut self) {
        self.spare.pop();
    }

    /// Frees the memory of a block's part for layers without a window.
    ///
    /// # Panics
    ///
    /// If the block does not exist.
    pub fn free_block(&mut self, block: u32) {
        self.blocks[block as usize] = CacheBlock::default();
    }

    /// Gives a block after [`KvStore::free_block`] a part for layers without a window again.
    ///
    /// # Panics
    ///
    /// If the block does not exist.
    pub fn restore_block(&mut self, block: u32) {
        let [numbers, _] = self.numbers();
        self.blocks[block as usize] = CacheBlock::new(numbers);
    }

    /// Returns the bytes of all parts that exist.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        let parts = self.blocks.iter().chain(&self.windows).chain(&self.spare);
        parts.map(|part| size_of_val(part.read())).sum()
    }
}

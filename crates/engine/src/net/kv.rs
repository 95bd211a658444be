//! Key-value cache in blocks of a few tokens, so that sequences can share a prefix.
#![allow(unsafe_code)] // threads append to different sequences of one store

use maverl_kernels::attention::{BLOCK_TOKENS, Block, Blocks, Segment};

use crate::files::HfConfig;

/// Blocks of keys and values of a decoder's layers. Ownership of blocks is not tracked here.
///
/// A block holds [`KvStore::TOKENS`] tokens: for each layer keys `[Hkv * head_dim, TOKENS]`, then values
/// `[TOKENS, Hkv * head_dim]`.
#[derive(Debug)]
pub struct KvStore {
    blocks: Vec<Block>,
    layers: usize,
    /// Elements of a token's keys, or values, in a layer.
    width: usize,
}

impl KvStore {
    /// Number of tokens in a block.
    pub const TOKENS: usize = BLOCK_TOKENS;

    /// Creates an empty store for sequences of one model.
    pub fn new(config: &HfConfig) -> Self {
        let heads = config.heads();
        Self { blocks: Vec::new(), layers: config.layers.len(), width: heads.kv * heads.dim }
    }

    /// Returns the bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.block() * size_of::<f32>()
    }

    /// Returns the number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns true if there is no block.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds a block and returns its number; numbers count up from 0.
    pub fn add(&mut self) -> u32 {
        self.blocks.push(Block::new(self.block()));
        self.blocks.len() as u32 - 1
    }

    /// Frees every block.
    pub fn clear(&mut self) {
        self.blocks.clear();
    }

    /// Copies the first tokens of one block to another.
    ///
    /// # Panics
    ///
    /// If they are the same block, or one does not exist.
    pub fn copy(&mut self, from: u32, to: u32, tokens: usize) {
        let (part, width) = (self.part(), self.width);
        let [from, to] = self
            .blocks
            .get_disjoint_mut([from as usize, to as usize])
            .expect("two blocks of this store");
        let (from, to) = (from.read(), to.get_mut());
        for (from, to) in from.chunks_exact(2 * part).zip(to.chunks_exact_mut(2 * part)) {
            let (keys, values) = to.split_at_mut(part);
            let lines = keys.chunks_exact_mut(Self::TOKENS).zip(from.chunks_exact(Self::TOKENS));
            lines.for_each(|(to, from)| to[..tokens].copy_from_slice(&from[..tokens]));
            values[..tokens * width].copy_from_slice(&from[part..][..tokens * width]);
        }
    }

    /// Returns the blocks for attention in one layer.
    pub(super) fn layer(&self, layer: usize) -> Blocks<'_> {
        let keys = 2 * layer * self.part();
        Blocks { storage: &self.blocks, keys, values: keys + self.part() }
    }

    /// Writes a layer's new keys and values `[N, width]` to the end of each segment.
    ///
    /// # Safety
    ///
    /// Meanwhile, nobody else reads or writes the blocks that receive tokens.
    pub(super) unsafe fn append(
        &self,
        layer: usize,
        k: &[f32],
        v: &[f32],
        segments: &[Segment<'_>],
    ) {
        let (width, part) = (self.width, self.part());
        let mut done = 0;
        for segment in segments {
            let mut position = segment.len - segment.new_tokens;
            while position < segment.len {
                let (index, row) = (position / Self::TOKENS, position % Self::TOKENS);
                let rows = (Self::TOKENS - row).min(segment.len - position);
                let new = done * width..(done + rows) * width;
                // SAFETY: guaranteed by the caller.
                let block = unsafe { self.blocks[segment.blocks[index] as usize].write() };
                let (keys, values) = block[2 * layer * part..].split_at_mut(part);
                for (token, k) in (row..).zip(k[new.clone()].chunks_exact(width)) {
                    let lines = keys.as_chunks_mut::<{ Self::TOKENS }>().0;
                    lines.iter_mut().zip(k).for_each(|(line, k)| line[token] = *k);
                }
                values[row * width..(row + rows) * width].copy_from_slice(&v[new]);
                (done, position) = (done + rows, position + rows);
            }
        }
    }

    /// Returns the number of elements of a layer's keys, or values, in a block.
    fn part(&self) -> usize {
        Self::TOKENS * self.width
    }

    /// Returns the number of elements of a block.
    fn block(&self) -> usize {
        2 * self.layers * self.part()
    }
}

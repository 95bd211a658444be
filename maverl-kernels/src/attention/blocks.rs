//! Blocks of keys and values, which threads write at once.
#![allow(unsafe_code)] // different threads write different blocks of one store

use std::cell::UnsafeCell;

/// Tokens in a block of keys and values.
pub const BLOCK_TOKENS: usize = crate::lanes::LANES;

/// Keys and values of at most [`BLOCK_TOKENS`] consecutive tokens of a sequence.
#[derive(Debug, Default)]
pub struct CacheBlock {
    numbers: Box<[UnsafeCell<f32>]>,
}

// SAFETY: a shared block is only read, except through `CacheBlock::write`, whose caller keeps every other reference away.
unsafe impl Sync for CacheBlock {}

impl CacheBlock {
    /// Creates a block of `len` zeros.
    pub fn new(len: usize) -> Self {
        vec![0.0; len].into()
    }

    /// Returns the numbers.
    #[inline(always)]
    pub fn read(&self) -> &[f32] {
        let Self { numbers } = self;
        // SAFETY: an `UnsafeCell<f32>` has the layout of an `f32`, and nobody writes meanwhile (`CacheBlock::write`).
        unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), numbers.len()) }
    }

    /// Returns the numbers of a block that nobody shares.
    pub fn get_mut(&mut self) -> &mut [f32] {
        // SAFETY: the block is borrowed exclusively.
        unsafe { self.write() }
    }

    /// Returns the numbers of a shared block.
    ///
    /// # Safety
    ///
    /// While the result lives, no other reference to the numbers exists.
    #[expect(clippy::mut_from_ref, reason = "the caller guarantees that no other reference exists")]
    pub unsafe fn write(&self) -> &mut [f32] {
        let Self { numbers } = self;
        let start = UnsafeCell::raw_get(numbers.as_ptr()).cast();
        // SAFETY: the cells are borrowed, and the result is exclusive as guaranteed by the caller.
        unsafe { std::slice::from_raw_parts_mut(start, numbers.len()) }
    }
}

impl From<Vec<f32>> for CacheBlock {
    fn from(numbers: Vec<f32>) -> Self {
        Self { numbers: numbers.into_iter().map(UnsafeCell::new).collect() }
    }
}

/// Keys and values of many sequences, in blocks of [`BLOCK_TOKENS`] tokens.
#[derive(Debug, Clone, Copy)]
pub struct CacheBlocks<'a> {
    /// Storage of all blocks.
    pub storage: &'a [CacheBlock],
    /// Offset of the keys `[kv * dim, BLOCK_TOKENS]` in a block.
    pub keys: usize,
    /// Offset of the values `[BLOCK_TOKENS, kv * dim]` in a block.
    pub values: usize,
}

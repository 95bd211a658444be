//! One side of a product in memory.
#![allow(unsafe_code)]

use std::{marker::PhantomData, ops::Range};

use super::element::{Element, word_count};
use super::path::ProductPath;
use super::tiles::{BLOCK, PANEL, Panel};

/// Words of a sum that are added before they are added to the earlier ones.
pub(super) const MOST_WORDS: usize = 512;

/// Words between the end of a tile's row and the next row. Without them, rows of a power of two would map to the same
/// cache sets.
pub(super) const GAP: usize = 16;

/// Returns the bits of some `f32`.
#[inline(always)]
pub(super) fn term_bits(terms: &[f32]) -> &[u32] {
    // SAFETY: an `f32` and its bits have the same size and alignment, and any bits are a `u32`.
    unsafe { std::slice::from_raw_parts(terms.as_ptr().cast(), terms.len()) }
}

/// Memory order of a matrix: the index that is consecutive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum MemoryOrder {
    /// Terms of one index are consecutive: `[indices, terms]`.
    Terms,
    /// Indices of one term are consecutive: `[terms, indices]`.
    Indices,
}

/// One side of a product: the terms of a sum for every index (a row of the left side, a column of the right side).
pub(super) struct Matrix<'a, E> {
    pub(super) data: &'a [f32],
    pub(super) indices: usize,
    pub(super) terms: usize,
    pub(super) order: MemoryOrder,
    pub(super) element: PhantomData<E>,
}

impl<'a, E: Element> Matrix<'a, E> {
    pub(super) fn new(data: &'a [f32], indices: usize, terms: usize, order: MemoryOrder) -> Self {
        assert_eq!(data.len(), indices * terms, "a matrix holds its elements");
        Self { data, indices, terms, order, element: PhantomData }
    }

    /// Returns the number of words of every sum.
    pub(super) fn words(&self) -> usize {
        word_count::<E>(self.terms)
    }

    /// Returns true if [`Matrix::pack_tiles`] packs tiles together, because they lie side by side in memory.
    pub(super) fn has_tiles_together(&self, path: ProductPath) -> bool {
        self.order == MemoryOrder::Indices && !path.reads_rows()
    }

    /// Returns true if [`Matrix::pack_tiles`] packs nothing: the terms of each row are consecutive, and not split into pieces.
    pub(super) fn has_tiles_in_place(&self) -> bool {
        E::TERMS == 1 && self.order == MemoryOrder::Terms && self.terms <= MOST_WORDS
    }

    /// Returns true if [`Matrix::panel_in_place`] may be called.
    pub(super) fn has_panels_in_place(&self) -> bool {
        self.order == MemoryOrder::Indices && E::TERMS == 1
    }

    /// Returns a panel in place: all of its columns exist and are consecutive in memory.
    pub(super) fn panel_in_place(&self, column: usize, words: Range<usize>) -> Panel<'a> {
        assert!(self.order == MemoryOrder::Indices && column + PANEL <= self.indices);
        let of = term_bits(&self.data[words.start * self.indices + column..]);
        Panel { words: of, stride: self.indices, half: BLOCK, depth: words.len() }
    }
}

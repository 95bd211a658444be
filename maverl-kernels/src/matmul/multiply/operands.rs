//! Words of a tile and a panel that the inner loop multiplies next.
#![allow(unsafe_code)]

use std::hint::black_box;

use super::super::element::Element;
use super::super::part::MOST_ROWS;
use super::super::tiles::{BLOCK, Panel, Tile};
use super::super::vectors::Vectors;

/// Pointers to a word of `R` rows of a tile, and to a line of a panel.
#[derive(Clone, Copy)]
pub(super) struct Operands<const R: usize> {
    /// A pointer for every three rows. A load adds no, one or two rows to it without an instruction of its own.
    threes: [*const u32; MOST_ROWS.div_ceil(3)],
    /// Words from one row to the next, and from one word of a row to the next.
    row: usize,
    word: usize,
    line: *const u32,
    /// Words from one line to the next, and to its second half.
    stride: usize,
    half: usize,
}

impl<const R: usize> Operands<R> {
    /// Points to the first word of each row, and to the first line.
    #[inline(always)]
    pub(super) fn from_tile(tile: Tile<'_>, panel: Panel<'_>) -> Self {
        let Tile { words, row, word } = tile;
        let mut threes = [words.as_ptr(); MOST_ROWS.div_ceil(3)];
        for (i, three) in threes.iter_mut().enumerate().take(R.div_ceil(3)).skip(1) {
            // Else the compiler computes this pointer from the last one in every step.
            *three = black_box(three.wrapping_add(3 * i * row));
        }
        let Panel { words: lines, stride, half, .. } = panel;
        Self { threes, row, word, line: lines.as_ptr(), stride, half }
    }

    /// Returns the same pointers, with words of rows `word` apart and lines `stride` apart, as they are: where these are
    /// constants, loads use them without an instruction of their own.
    #[inline(always)]
    pub(super) fn with_distances(self, word: usize, stride: usize) -> Self {
        assert_eq!((word, stride), (self.word, self.stride), "distances stay as they are");
        Self { word, stride, ..self }
    }

    /// Returns the words from the start of a line to a column.
    #[inline(always)]
    fn column_offset(&self, column: usize) -> usize {
        column / BLOCK * self.half + column % BLOCK
    }

    /// Returns pointers to the same rows, and to the line from a column on.
    #[inline(always)]
    pub(super) fn at_column(self, column: usize) -> Self {
        Self { line: self.line.wrapping_add(self.column_offset(column)), ..self }
    }

    /// Returns word `p` of a row from the current one on.
    ///
    /// # Safety
    ///
    /// The tile has the row and the word.
    #[inline(always)]
    pub(super) unsafe fn row_word(&self, r: usize, p: usize) -> f32 {
        // SAFETY: as guaranteed by the caller.
        f32::from_bits(unsafe { *self.threes[r / 3].add(r % 3 * self.row).add(p * self.word) })
    }

    /// Returns the `i`-th vector of line `p` from the current one on.
    ///
    /// # Safety
    ///
    /// The panel has the line, and the line the vector.
    #[inline(always)]
    pub(super) unsafe fn column_vector<V: Vectors>(&self, i: usize, p: usize) -> V::u32s {
        // SAFETY: as guaranteed by the caller.
        unsafe {
            let vector = self.line.add(p * self.stride).add(self.column_offset(i * V::U32_LANES));
            vector.cast::<V::u32s>().read_unaligned()
        }
    }

    /// Goes on by some words.
    #[inline(always)]
    pub(super) fn advance<E: Element>(&mut self, words: usize) {
        for three in self.threes.iter_mut().take(R.div_ceil(3)) {
            *three = three.wrapping_add(words * E::TERMS * self.word);
        }
        self.line = self.line.wrapping_add(words * self.stride);
    }
}

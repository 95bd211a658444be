//! Tiles and panels, as a kernel reads them.
#![allow(unsafe_code)]

use std::ops::Range;

/// Number of columns of a panel.
pub(super) const PANEL: usize = 32;

/// Rows and columns of a block that is transposed at once.
pub(super) const BLOCK: usize = 16;

/// Room for one word of every column of a panel.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C, align(64))]
pub(super) struct PanelLine([u32; PANEL]);

/// Returns the words of some lines.
pub(super) fn line_words(lines: &[PanelLine]) -> &[u32] {
    // SAFETY: a line is `PANEL` words without padding.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * PANEL) }
}

/// Returns the words of some lines.
pub(super) fn line_words_mut(lines: &mut [PanelLine]) -> &mut [u32] {
    // SAFETY: a line is `PANEL` words without padding.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * PANEL) }
}

/// A panel in the layout that a kernel reads: word `p` of its first columns is `words[p * stride..][..BLOCK]`, and that
/// of the others begins `half` words later.
#[derive(Debug, Clone, Copy)]
pub(super) struct Panel<'a> {
    pub(super) words: &'a [u32],
    pub(super) stride: usize,
    pub(super) half: usize,
    pub(super) depth: usize,
}

impl<'a> Panel<'a> {
    /// Returns some words of a packed panel, whose words and halves are so far apart.
    pub(super) fn from_packed(
        lines: &'a [PanelLine],
        words: Range<usize>,
        (stride, half): (usize, usize),
    ) -> Self {
        Self { words: &line_words(lines)[words.start * stride..], stride, half, depth: words.len() }
    }

    /// Asserts that the panel has its words.
    #[inline(always)]
    pub(super) fn assert_words(&self) {
        let last = self.depth.saturating_sub(1) * self.stride + self.half;
        assert!(self.depth == 0 || self.words.len() >= last + BLOCK, "a panel of {}", self.depth);
    }
}

/// A tile in the layout that a kernel reads: word `p` of row `r` is `words[r * row + p * word]`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tile<'a> {
    pub(super) words: &'a [u32],
    pub(super) row: usize,
    pub(super) word: usize,
}

impl Tile<'_> {
    /// Asserts that the tile has this number of rows and words.
    #[inline(always)]
    pub(super) fn assert_shape(&self, rows: usize, words: usize) {
        let last = rows.max(1).saturating_sub(1) * self.row + words.saturating_sub(1) * self.word;
        assert!(last < self.words.len(), "a tile of {rows} rows and {words} words");
    }
}

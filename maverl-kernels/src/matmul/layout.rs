//! Memory layouts of matrices, and their packing for the kernels.
//!
//! A *word* is 32 bits of consecutive terms: one `f32`, or two terms of 16 bits with the earlier one in the low half. All
//! layouts are in words, so that all precisions share them:
//!
//! - a *tile* is some rows of the left side, `[rows, words + GAP]`, or `[words, BLOCK]` if the source is transposed.
//!   Where terms are widened, a tile has one word for each, so that the inner loop widens columns alone;
//! - a *panel* is [`PANEL`] columns of the right side, padded with zeros: `[words, PANEL]`, or two halves
//!   `[words, BLOCK]` where the inner loop reads half of the columns at a time ([`ProductPath::reads_halves`]). A processor
//!   prefetches lines of 64 bytes that follow each other, but hardly every second one. Panels of `f16` have first all first
//!   terms of the words of a vector, then all second ones.

mod lay;

use std::ops::Range;

use super::element::{Element, word_count};
use super::matrix::{GAP, Matrix, MemoryOrder, term_bits};
use super::path::ProductPath;
use super::prefetch::prefetch_line;
use super::tiles::{BLOCK, PANEL, PanelLine, Tile, line_words_mut};
use lay::{LayPanel, LayTile, LayTiles};

/// Returns the number of lines of all panels of `columns` sums of `terms`.
pub(super) fn panel_lines<E: Element>(columns: usize, terms: usize) -> usize {
    columns.div_ceil(PANEL) * word_count::<E>(terms)
}

/// Panels of some columns and words, one after the other: a line for each word, see [`ProductPath::packed_panel`].
#[derive(Debug, Clone)]
pub(super) struct PackedPanels<'a> {
    pub(super) lines: &'a [PanelLine],
    pub(super) columns: Range<usize>,
    pub(super) words: Range<usize>,
}

/// Right side of a product.
pub(super) enum Panels<'a, E> {
    /// Packed on demand.
    Of(Matrix<'a, E>),
    /// Packed before: all columns and words.
    Packed(PackedPanels<'a>),
}

impl<E: Element> Panels<'_, E> {
    pub(super) fn columns(&self) -> usize {
        match self {
            Self::Of(matrix) => matrix.indices,
            Self::Packed(packed) => packed.columns.end,
        }
    }
}

impl<E: Element> Matrix<'_, E> {
    /// Sets `tiles` to tiles of `size` rows each, packed into `out`, `room` words apart, or in place.
    pub(super) fn pack_tiles<'o>(
        &'o self,
        rows: Range<usize>,
        size: usize,
        words: Range<usize>,
        (out, room): (&'o mut [u32], usize),
        path: ProductPath,
        tiles: &mut [Tile<'o>],
    ) {
        if self.has_tiles_together(path) {
            path.run(LayTiles { matrix: self, rows, size, words, path, out: &mut *out, room });
            for (tile, words) in tiles.iter_mut().zip(out.chunks_exact(room)) {
                *tile = Tile { words, row: 1, word: BLOCK };
            }
            return;
        }
        let places = out.chunks_exact_mut(room).zip(rows.clone().step_by(size));
        for (tile, (out, start)) in tiles.iter_mut().zip(places) {
            *tile = self.pack_tile(start..rows.end.min(start + size), words.clone(), out, path);
        }
    }

    /// Returns the tile of some rows and words, packed into `out` or in place. Paths that read whole rows find zeros in
    /// rows up to a multiple of 16.
    fn pack_tile<'o>(
        &'o self,
        rows: Range<usize>,
        words: Range<usize>,
        out: &'o mut [u32],
        path: ProductPath,
    ) -> Tile<'o> {
        if self.has_tiles_in_place() {
            let of = term_bits(&self.data[rows.start * self.terms..rows.end * self.terms]);
            return Tile { words: of, row: self.terms, word: 1 };
        }
        let len = words.len() * path.tile_words::<E>();
        let stride = len + GAP;
        if path.reads_rows() {
            out[rows.len() * stride..rows.len().next_multiple_of(BLOCK) * stride].fill(0);
        }
        path.run(LayTile { matrix: self, rows, words, len, path, out: &mut *out });
        Tile { words: out, row: stride, word: 1 }
    }

    /// Prefetches a part of the data that [`Matrix::pack_tiles`] will read.
    pub(super) fn prefetch_part(
        &self,
        rows: &Range<usize>,
        words: &Range<usize>,
        part: usize,
        parts: usize,
    ) {
        let line = 64 / size_of::<f32>();
        let terms = words.start * E::TERMS..self.terms.min(words.end * E::TERMS);
        let start = self.data.as_ptr();
        match self.order {
            MemoryOrder::Terms => {
                for row in rows.clone().skip(part).step_by(parts) {
                    for term in terms.clone().step_by(line) {
                        prefetch_line(start.wrapping_add(row * self.terms + term));
                    }
                }
            }
            MemoryOrder::Indices if rows.is_empty() => {}
            MemoryOrder::Indices => {
                for term in terms.skip(part).step_by(parts) {
                    prefetch_line(start.wrapping_add(term * self.indices + rows.start));
                    prefetch_line(start.wrapping_add(term * self.indices + rows.end - 1));
                }
            }
        }
    }

    /// Packs the panel of at most [`PANEL`] columns and some words, one line of `out` for each.
    pub(super) fn pack_panel(
        &self,
        columns: Range<usize>,
        words: Range<usize>,
        out: &mut [PanelLine],
        path: ProductPath,
    ) {
        let strides = path.packed_panel(out.len());
        let widened = path.tile_words::<E>() > 1;
        let out = line_words_mut(out);
        path.run(LayPanel { matrix: self, columns, words, out, strides, widened });
    }
}

//! Memory layouts of matrices, and their packing for the kernels.
//!
//! A *word* is 32 bits of consecutive terms: one `f32`, or two `bf16` with the earlier term in the low half. All
//! layouts are in words, so that both precisions share them:
//!
//! - a *tile* is some rows of the left side, `[rows, words + GAP]`, or `[words, BLOCK]` if the source is transposed.
//!   Where `bf16` is widened, a tile has one word for each term, so that the inner loop widens columns alone;
//! - a *panel* is [`PANEL`] columns of the right side, padded with zeros: `[words, PANEL]`, or two halves
//!   `[words, BLOCK]` where the inner loop reads half of the columns at a time ([`Path::reads_halves`]). A processor
//!   prefetches lines of 64 bytes that follow each other, but hardly every second one.

#![allow(unsafe_code)]

mod lay;

use std::{marker::PhantomData, ops::Range};

use pulp::Simd;

use super::path::{Path, prefetch};
use lay::{LayPanel, LayTile, LayTiles};

/// Number of columns of a panel.
pub(super) const PANEL: usize = 32;
/// Words of a sum that are added before they are added to the earlier ones.
pub(super) const MOST_WORDS: usize = 512;
/// Rows and columns of a block that is transposed at once.
pub(super) const BLOCK: usize = 16;

/// Words between the end of a tile's row and the next row. Without them, rows of a power of two would map to the same
/// cache sets.
pub(super) const GAP: usize = 16;

/// Room for one word of every column of a panel.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C, align(64))]
pub(super) struct Line([u32; PANEL]);

/// Returns the words of some lines.
fn flat(lines: &[Line]) -> &[u32] {
    // SAFETY: a line is `PANEL` words without padding.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * PANEL) }
}

/// Returns the words of some lines.
fn flat_mut(lines: &mut [Line]) -> &mut [u32] {
    // SAFETY: a line is `PANEL` words without padding.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * PANEL) }
}

/// Conversion of terms to words in one precision.
pub(super) trait Element: Send + Sync + 'static {
    /// Terms per word.
    const TERMS: usize;
    /// Number of words that divides every sum's length; the last ones are zero. It is the depth of a tile instruction.
    const STEP: usize;
    /// Returns the word of a term and the next one; `f32` has no next one.
    fn word(low: f32, high: f32) -> u32;
    /// Returns one of the terms of some words, as `f32`.
    fn term<S: Simd>(simd: S, words: S::u32s, term: usize) -> S::f32s;
}

/// Terms without rounding.
pub(super) enum F32 {}

/// Terms rounded to `bf16` (to the nearest, ties to even), two per word.
pub(super) enum Bf16 {}

impl Element for F32 {
    const TERMS: usize = 1;
    const STEP: usize = 1;
    #[inline(always)]
    fn word(low: f32, _: f32) -> u32 {
        low.to_bits()
    }
    #[inline(always)]
    fn term<S: Simd>(simd: S, words: S::u32s, _: usize) -> S::f32s {
        simd.transmute_f32s_u32s(words)
    }
}

impl Element for Bf16 {
    const TERMS: usize = 2;
    const STEP: usize = 16;
    #[inline(always)]
    fn word(low: f32, high: f32) -> u32 {
        nearest_bf16(low.to_bits()) >> 16 | nearest_bf16(high.to_bits())
    }
    #[inline(always)]
    fn term<S: Simd>(simd: S, words: S::u32s, term: usize) -> S::f32s {
        simd.transmute_f32s_u32s(match term {
            0 => simd.wrapping_dyn_shl_u32s(words, simd.splat_u32s(16)),
            _ => simd.and_u32s(words, simd.splat_u32s(0xffff_0000)),
        })
    }
}

/// Rounds an `f32` to the nearest `bf16`, ties to even. Its bits are the upper half; the lower half is zero. NaN stays
/// NaN.
#[inline(always)]
pub(super) fn nearest_bf16(bits: u32) -> u32 {
    let nan = bits & 0x7fff_ffff > 0x7f80_0000;
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    (if nan { bits | 0x40_0000 } else { rounded }) & 0xffff_0000
}

/// Returns the number of words of a sum of `terms`.
pub(super) fn words<E: Element>(terms: usize) -> usize {
    terms.div_ceil(E::TERMS).next_multiple_of(E::STEP)
}

/// Returns the number of lines of all panels of `columns` sums of `terms`.
pub(super) fn panel_lines<E: Element>(columns: usize, terms: usize) -> usize {
    columns.div_ceil(PANEL) * words::<E>(terms)
}

/// Returns the bits of some `f32`.
#[inline(always)]
fn bits(terms: &[f32]) -> &[u32] {
    // SAFETY: an `f32` and its bits have the same size and alignment, and any bits are a `u32`.
    unsafe { std::slice::from_raw_parts(terms.as_ptr().cast(), terms.len()) }
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
    /// Returns some words of a packed panel.
    pub(super) fn packed(lines: &'a [Line], words: Range<usize>, path: Path) -> Self {
        let (stride, half) = path.packed_panel(lines.len());
        Self { words: &flat(lines)[words.start * stride..], stride, half, depth: words.len() }
    }

    /// Asserts that the panel has its words.
    #[inline(always)]
    pub(super) fn check(&self) {
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
    pub(super) fn check(&self, rows: usize, words: usize) {
        let last = rows.max(1).saturating_sub(1) * self.row + words.saturating_sub(1) * self.word;
        assert!(last < self.words.len(), "a tile of {rows} rows and {words} words");
    }
}

/// Memory order of a matrix: the index that is consecutive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Order {
    /// Terms of one index are consecutive: `[indices, terms]`.
    Terms,
    /// Indices of one term are consecutive: `[terms, indices]`.
    Indices,
}

/// One side of a product: the terms of a sum for every index (a row of the left side, a column of the right side).
pub(super) struct Matrix<'a, E> {
    data: &'a [f32],
    pub(super) indices: usize,
    pub(super) terms: usize,
    order: Order,
    element: PhantomData<E>,
}

/// Panels of some columns and words, one after the other: a line for each word, see [`Path::packed_panel`].
#[derive(Debug, Clone)]
pub(super) struct Packed<'a> {
    pub(super) lines: &'a [Line],
    pub(super) columns: Range<usize>,
    pub(super) words: Range<usize>,
}

/// Right side of a product.
pub(super) enum Panels<'a, E> {
    /// Packed on demand.
    Of(Matrix<'a, E>),
    /// Packed before: all columns and words.
    Packed(Packed<'a>),
}

impl<E: Element> Panels<'_, E> {
    pub(super) fn columns(&self) -> usize {
        match self {
            Self::Of(matrix) => matrix.indices,
            Self::Packed(packed) => packed.columns.end,
        }
    }
}

impl<'a, E: Element> Matrix<'a, E> {
    pub(super) fn new(data: &'a [f32], indices: usize, terms: usize, order: Order) -> Self {
        assert_eq!(data.len(), indices * terms, "a matrix holds its elements");
        Self { data, indices, terms, order, element: PhantomData }
    }

    /// Returns the number of words of every sum.
    pub(super) fn words(&self) -> usize {
        words::<E>(self.terms)
    }

    /// Returns true if [`Matrix::tiles`] packs tiles together, because they lie side by side in memory.
    pub(super) fn has_tiles_together(&self, path: Path) -> bool {
        self.order == Order::Indices && !path.reads_rows()
    }

    /// Returns true if [`Matrix::tiles`] packs nothing: the terms of each row are consecutive, and not split into pieces.
    pub(super) fn has_tiles_in_place(&self) -> bool {
        E::TERMS == 1 && self.order == Order::Terms && self.terms <= MOST_WORDS
    }

    /// Sets `tiles` to tiles of `size` rows each, packed into `out`, `room` words apart, or in place.
    pub(super) fn tiles<'o>(
        &'o self,
        rows: Range<usize>,
        size: usize,
        words: Range<usize>,
        (out, room): (&'o mut [u32], usize),
        path: Path,
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
            *tile = self.tile(start..rows.end.min(start + size), words.clone(), out, path);
        }
    }

    /// Returns the tile of some rows and words, packed into `out` or in place. Paths that read whole rows find zeros in
    /// rows up to a multiple of 16.
    fn tile<'o>(
        &'o self,
        rows: Range<usize>,
        words: Range<usize>,
        out: &'o mut [u32],
        path: Path,
    ) -> Tile<'o> {
        if self.has_tiles_in_place() {
            let of = bits(&self.data[rows.start * self.terms..rows.end * self.terms]);
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

    /// Prefetches a part of the data that [`Matrix::tiles`] will read.
    pub(super) fn prefetch(
        &self,
        rows: &Range<usize>,
        words: &Range<usize>,
        part: usize,
        parts: usize,
    ) {
        let line = 64 / size_of::<f32>();
        let terms = words.start * E::TERMS..self.terms.min(words.end * E::TERMS);
        let ask = |at: usize| prefetch(self.data.as_ptr().wrapping_add(at));
        match self.order {
            Order::Terms => {
                for row in rows.clone().skip(part).step_by(parts) {
                    terms.clone().step_by(line).for_each(|term| ask(row * self.terms + term));
                }
            }
            Order::Indices if rows.is_empty() => {}
            Order::Indices => {
                for term in terms.skip(part).step_by(parts) {
                    ask(term * self.indices + rows.start);
                    ask(term * self.indices + rows.end - 1);
                }
            }
        }
    }

    /// Returns true if [`Matrix::panel_in_place`] may be called.
    pub(super) fn has_panels_in_place(&self) -> bool {
        self.order == Order::Indices && E::TERMS == 1
    }

    /// Returns a panel in place: all of its columns exist and are consecutive in memory.
    pub(super) fn panel_in_place(&self, column: usize, words: Range<usize>) -> Panel<'a> {
        assert!(self.order == Order::Indices && column + PANEL <= self.indices);
        let of = bits(&self.data[words.start * self.indices + column..]);
        Panel { words: of, stride: self.indices, half: BLOCK, depth: words.len() }
    }

    /// Packs the panel of at most [`PANEL`] columns and some words, one line of `out` for each.
    pub(super) fn panel(
        &self,
        columns: Range<usize>,
        words: Range<usize>,
        out: &mut [Line],
        path: Path,
    ) {
        let strides = path.packed_panel(out.len());
        path.run(LayPanel { matrix: self, columns, words, out: flat_mut(out), strides });
    }
}

//! How matrices lie in memory, and how they are laid out for the kernels.
//!
//! A *word* is 32 bits of consecutive terms: one `f32`, or two `bf16` with the earlier term in the low half. All layouts
//! are in words, so that both precisions share them:
//!
//! - a *tile* is some rows of the left side, `[rows, words + GAP]`, or `[words, BLOCK]` where that is how they come. Where
//!   `bf16` is widened, a tile has a word for each term, so that the inner loop widens columns alone;
//! - a *panel* is [`PANEL`] columns of the right side, `[words, PANEL]`, zeros where there is no column.

#![allow(unsafe_code)]

use std::{marker::PhantomData, ops::Range};

use pulp::Simd;

use super::path::{Path, prefetch};
use super::vectors::{Vectors, Work, pair, round};

/// Columns of a panel.
pub(super) const PANEL: usize = 32;
/// Rows and columns of what is transposed at once.
pub(super) const BLOCK: usize = 16;

/// Words between the end of a tile's row and the next row: rows of a power of two would meet in the cache.
pub(super) const GAP: usize = 16;

/// One word of every column of a panel.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u32; PANEL]);

/// How a precision makes words of terms.
pub(super) trait Element: Send + Sync + 'static {
    /// Terms of a word.
    const TERMS: usize;
    /// Sums have a multiple of so many words, the last ones zero: what a tile instruction takes at once.
    const STEP: usize;
    /// The word of a term and the next; `f32` has no next.
    fn word(low: f32, high: f32) -> u32;
    /// One of the terms of some words, as `f32`.
    fn term<S: Simd>(simd: S, words: S::u32s, term: usize) -> S::f32s;
}

/// Terms as they are.
pub(super) enum F32 {}

/// Terms rounded to `bf16` (to the nearest, ties to even), two to a word.
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

/// The bits of an `f32` rounded to the nearest `bf16`, ties to even, in the upper half; zeros in the lower. NaN stays NaN.
#[inline(always)]
pub(super) fn nearest_bf16(bits: u32) -> u32 {
    let nan = bits & 0x7fff_ffff > 0x7f80_0000;
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    (if nan { bits | 0x40_0000 } else { rounded }) & 0xffff_0000
}

/// The words of a sum of `terms`.
pub(super) fn words<E: Element>(terms: usize) -> usize {
    terms.div_ceil(E::TERMS).next_multiple_of(E::STEP)
}

/// The lines of all panels of `columns` sums of `terms`.
pub(super) fn panel_lines<E: Element>(columns: usize, terms: usize) -> usize {
    columns.div_ceil(PANEL) * words::<E>(terms)
}

/// The words of consecutive terms that fill them.
#[inline(always)]
fn copy_words<E: Element, V: Vectors>(simd: V, terms: &[f32], out: &mut [u32]) {
    assert_eq!(terms.len(), out.len() * E::TERMS, "terms fill their words");
    if E::TERMS == 1 {
        return out.copy_from_slice(bits(terms));
    }
    let (out, last_out) = out.as_chunks_mut::<BLOCK>();
    let (terms, last_terms) = terms.as_chunks::<{ 2 * BLOCK }>();
    for (out, terms) in out.iter_mut().zip(terms) {
        simd.pairs(terms, out);
    }
    for (out, terms) in last_out.iter_mut().zip(last_terms.as_chunks::<2>().0) {
        *out = E::word(terms[0], terms[1]);
    }
}

/// The bits of some `f32`.
#[inline(always)]
fn bits(terms: &[f32]) -> &[u32] {
    // SAFETY: an `f32` and its bits have the same size and alignment, and any bits are a `u32`.
    unsafe { std::slice::from_raw_parts(terms.as_ptr().cast(), terms.len()) }
}

/// A panel as a kernel reads it: [`PANEL`] words, `stride` from one line to the next, `depth` lines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Panel<'a> {
    pub(super) words: &'a [u32],
    pub(super) stride: usize,
    pub(super) depth: usize,
}

impl<'a> Panel<'a> {
    /// Lines that lie one after the other.
    pub(super) fn of(lines: &'a [Line]) -> Self {
        let (start, count) = (lines.as_ptr().cast(), lines.len() * PANEL);
        // SAFETY: a line is `PANEL` words without padding.
        let words = unsafe { std::slice::from_raw_parts(start, count) };
        Self { words, stride: PANEL, depth: lines.len() }
    }
}

/// A tile as a kernel reads it: word `p` of row `r` is `words[r * row + p * word]`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tile<'a> {
    pub(super) words: &'a [u32],
    pub(super) row: usize,
    pub(super) word: usize,
}

impl Tile<'_> {
    /// Asserts that a number of rows and words are there.
    #[inline(always)]
    pub(super) fn check(&self, rows: usize, words: usize) {
        let last = rows.max(1).saturating_sub(1) * self.row + words.saturating_sub(1) * self.word;
        assert!(last < self.words.len(), "a tile of {rows} rows and {words} words");
    }
}

/// What is consecutive in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Order {
    /// The terms of one index: `[indices, terms]`.
    Terms,
    /// The indices of one term: `[terms, indices]`.
    Indices,
}

/// One side of a product: for every index (a row of the left side, a column of the right) the terms of a sum.
pub(super) struct Matrix<'a, E> {
    data: &'a [f32],
    pub(super) indices: usize,
    pub(super) terms: usize,
    order: Order,
    element: PhantomData<E>,
}

/// The right side of a product.
pub(super) enum Panels<'a, E> {
    /// Laid out when needed.
    Of(Matrix<'a, E>),
    /// Laid out before: `[panels, words, PANEL]`.
    Packed { lines: &'a [Line], columns: usize },
}

impl<E: Element> Panels<'_, E> {
    pub(super) fn columns(&self) -> usize {
        match self {
            Self::Of(matrix) => matrix.indices,
            Self::Packed { columns, .. } => *columns,
        }
    }
}

impl<'a, E: Element> Matrix<'a, E> {
    pub(super) fn new(data: &'a [f32], indices: usize, terms: usize, order: Order) -> Self {
        assert_eq!(data.len(), indices * terms, "a matrix holds its elements");
        Self { data, indices, terms, order, element: PhantomData }
    }

    /// The words of every sum.
    pub(super) fn words(&self) -> usize {
        words::<E>(self.terms)
    }

    /// The tile of some rows and words, in `out` or where it lies. Paths that read whole rows find zeros in rows up to a
    /// multiple of 16.
    pub(super) fn tile<'o>(
        &'o self,
        rows: Range<usize>,
        words: Range<usize>,
        out: &'o mut [u32],
        path: Path,
    ) -> Tile<'o> {
        if E::TERMS == 1 && self.order == Order::Terms && words.len() == self.terms {
            let of = bits(&self.data[rows.start * self.terms..rows.end * self.terms]);
            return Tile { words: of, row: self.terms, word: 1 };
        }
        let len = words.len() * path.tile_words::<E>();
        let stride = len + GAP;
        let by_row = self.order == Order::Terms || path.reads_rows();
        if path.reads_rows() {
            out[rows.len() * stride..rows.len().next_multiple_of(BLOCK) * stride].fill(0);
        }
        path.run(LayTile { matrix: self, rows, words, len, path, out: &mut *out });
        let (row, word) = if by_row { (stride, 1) } else { (1, BLOCK) };
        Tile { words: out, row, word }
    }

    /// Asks for a part of what [`Matrix::tile`] will read.
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

    /// Whether [`Matrix::panel_in_place`] may be called.
    pub(super) fn has_panels_in_place(&self) -> bool {
        self.order == Order::Indices && E::TERMS == 1
    }

    /// A panel where it lies: all of its columns are there and consecutive in memory.
    pub(super) fn panel_in_place(&self, column: usize, words: Range<usize>) -> Panel<'a> {
        assert!(self.order == Order::Indices && column + PANEL <= self.indices);
        let of = bits(&self.data[words.start * self.indices + column..]);
        Panel { words: of, stride: self.indices, depth: words.len() }
    }

    /// The panel of at most [`PANEL`] columns and some words: `out [words, PANEL]`.
    pub(super) fn panel(
        &self,
        columns: Range<usize>,
        words: Range<usize>,
        out: &mut [Line],
        path: Path,
    ) {
        path.run(LayPanel { matrix: self, columns, words, out });
    }

    /// The words of one index from `first` on, when its terms are consecutive.
    #[inline(always)]
    fn terms_of<V: Vectors>(&self, simd: V, index: usize, first: usize, out: &mut [u32]) {
        let terms = &self.data[index * self.terms..(index + 1) * self.terms];
        let terms = &terms[(first * E::TERMS).min(self.terms)..];
        let whole = (terms.len() / E::TERMS).min(out.len());
        let (out, rest) = out.split_at_mut(whole);
        let (terms, last) = terms.split_at(whole * E::TERMS);
        copy_words::<E, V>(simd, terms, out);
        if !rest.is_empty() {
            rest.fill(0);
            rest[0] = last.first().map_or(0, |&last| E::word(last, 0.0));
        }
    }

    /// [`Matrix::terms_of`] with a word for each term.
    #[inline(always)]
    fn wide_terms_of<V: Vectors>(&self, simd: V, index: usize, first: usize, out: &mut [u32]) {
        let terms = &self.data[index * self.terms..(index + 1) * self.terms];
        let terms = &terms[(first * E::TERMS).min(self.terms)..];
        let (out, rest) = out.split_at_mut(terms.len().min(out.len()));
        round(simd, &terms[..out.len()], out);
        rest.fill(0);
    }

    /// One word of some indices, when those are consecutive; zeros in the rest of `out` and where the sum has ended.
    #[inline(always)]
    fn indices_of<V: Vectors, const N: usize>(
        &self,
        simd: V,
        word: usize,
        indices: &Range<usize>,
        out: &mut [u32; N],
    ) {
        let (set, rest) = out.split_at_mut(indices.len());
        rest.fill(0);
        let (low, high) = (word * E::TERMS, (word + 1) * E::TERMS - 1);
        if low >= self.terms {
            return set.fill(0);
        }
        let of = |term: usize| &self.data[term * self.indices..][indices.clone()];
        if E::TERMS == 1 {
            set.copy_from_slice(bits(of(low)));
        } else if high < self.terms {
            pair(simd, of(low), of(high), set);
        } else {
            let ends = of(low).iter();
            set.iter_mut().zip(ends).for_each(|(out, &l)| *out = E::word(l, 0.0));
        }
    }

    /// One term of some indices, rounded, when those are consecutive; zeros in the rest of `out` and where the sum has ended.
    #[inline(always)]
    fn wide_indices_of<V: Vectors>(
        &self,
        simd: V,
        term: usize,
        indices: &Range<usize>,
        out: &mut [u32; BLOCK],
    ) {
        let (set, rest) = out.split_at_mut(indices.len());
        rest.fill(0);
        if term < self.terms {
            round(simd, &self.data[term * self.indices..][indices.clone()], set);
        } else {
            set.fill(0);
        }
    }

    /// Blocks of 16 rows and 16 words, each read along the rows and transposed.
    #[inline(always)]
    fn transposed_tile<V: Vectors>(
        &self,
        simd: V,
        rows: Range<usize>,
        words: Range<usize>,
        out: &mut [u32],
    ) {
        let stride = words.len() + GAP;
        for (i, first) in rows.clone().step_by(BLOCK).enumerate() {
            let have = rows.end.min(first + BLOCK) - first;
            // Rows of the next tile are read too: whole lines are faster.
            let rows = first..self.indices.min(first + BLOCK);
            let out = &mut out[i * BLOCK * stride..];
            for (at, first) in (0..).step_by(BLOCK).zip(words.clone().step_by(BLOCK)) {
                let mut block = [[0; BLOCK]; BLOCK];
                for (line, word) in block.iter_mut().zip(first..words.end) {
                    self.indices_of(simd, word, &rows, line);
                }
                simd.transpose(&mut block);
                for (out, turned) in out.chunks_exact_mut(stride).zip(&block[..have]) {
                    // The gap has room for what the last block is too long.
                    out[at..at + BLOCK].copy_from_slice(turned);
                }
            }
        }
    }

    /// Blocks of 16 columns and 16 words, each read along the terms and transposed.
    #[inline(always)]
    fn transposed_panel<V: Vectors>(
        &self,
        simd: V,
        columns: Range<usize>,
        words: Range<usize>,
        out: &mut [Line],
    ) {
        for half in 0..2 {
            let first = columns.start + half * BLOCK;
            let have = columns.end.saturating_sub(first).min(BLOCK);
            for (start, out) in words.clone().step_by(BLOCK).zip(out.chunks_mut(BLOCK)) {
                let mut block = [[0; BLOCK]; BLOCK];
                let whole = (start + BLOCK) * E::TERMS <= self.terms;
                for (column, line) in (first..first + have).zip(&mut block) {
                    if !whole {
                        self.terms_of(simd, column, start, line);
                        continue;
                    }
                    let terms = &self.data[column * self.terms + start * E::TERMS..];
                    copy_words::<E, V>(simd, &terms[..BLOCK * E::TERMS], line);
                }
                simd.transpose(&mut block);
                for (Line(line), turned) in out.iter_mut().zip(&block) {
                    line[half * BLOCK..][..BLOCK].copy_from_slice(turned);
                }
            }
        }
    }
}

/// [`Matrix::tile`] on any path.
struct LayTile<'a, 'm, E> {
    matrix: &'a Matrix<'m, E>,
    rows: Range<usize>,
    words: Range<usize>,
    /// Words of a row of the tile.
    len: usize,
    path: Path,
    out: &'a mut [u32],
}

impl<E: Element> Work for LayTile<'_, '_, E> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vectors>(self, simd: V) {
        let Self { matrix, rows, words, len, path, out } = self;
        let widened = path.tile_words::<E>() > 1;
        if matrix.order == Order::Terms {
            for (row, out) in rows.zip(out.chunks_exact_mut(len + GAP)) {
                if widened {
                    matrix.wide_terms_of(simd, row, words.start, &mut out[..len]);
                } else {
                    matrix.terms_of(simd, row, words.start, &mut out[..len]);
                }
            }
        } else if path.reads_rows() {
            matrix.transposed_tile(simd, rows, words, out);
        } else {
            let rows = rows.start..matrix.indices.min(rows.start + BLOCK);
            let out = out.as_chunks_mut::<BLOCK>().0;
            if widened {
                for (term, out) in (words.start * E::TERMS..).zip(&mut out[..len]) {
                    matrix.wide_indices_of(simd, term, &rows, out);
                }
            } else {
                for (word, out) in words.zip(out) {
                    matrix.indices_of(simd, word, &rows, out);
                }
            }
        }
    }
}

/// [`Matrix::panel`] on any path.
struct LayPanel<'a, 'm, E> {
    matrix: &'a Matrix<'m, E>,
    columns: Range<usize>,
    words: Range<usize>,
    out: &'a mut [Line],
}

impl<E: Element> Work for LayPanel<'_, '_, E> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vectors>(self, simd: V) {
        let Self { matrix, columns, words, out } = self;
        match matrix.order {
            Order::Terms => matrix.transposed_panel(simd, columns, words, out),
            Order::Indices => {
                for (word, Line(out)) in words.zip(out) {
                    matrix.indices_of(simd, word, &columns, out);
                }
            }
        }
    }
}

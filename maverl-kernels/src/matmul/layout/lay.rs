//! Packing of tiles and panels with the vectors of a path.

use std::ops::Range;

use super::super::element::Element;
use super::super::matrix::{GAP, Matrix, MemoryOrder, term_bits};
use super::super::path::ProductPath;
use super::super::prefetch::prefetch_line;
use super::super::tiles::BLOCK;
use super::super::vectors::{VectorWork, Vectors, pair_words, round_terms};

/// Packs one tile whose rows are read together, or whose terms are consecutive, on any path.
pub(super) struct LayTile<'a, 'm, E> {
    pub(super) matrix: &'a Matrix<'m, E>,
    pub(super) rows: Range<usize>,
    pub(super) words: Range<usize>,
    /// Words of a row of the tile.
    pub(super) len: usize,
    pub(super) path: ProductPath,
    pub(super) out: &'a mut [u32],
}

impl<E: Element> VectorWork for LayTile<'_, '_, E> {
    type Output = ();

    #[inline(always)]
    fn run_with_vectors<V: Vectors>(self, simd: V) {
        let Self { matrix, rows, words, len, path, out } = self;
        let widened = path.tile_words::<E>() > 1;
        if matrix.order == MemoryOrder::Terms {
            for (row, out) in rows.zip(out.chunks_exact_mut(len + GAP)) {
                if widened {
                    matrix.wide_terms_of(simd, row, words.start, &mut out[..len]);
                } else {
                    matrix.terms_of(simd, row, words.start, &mut out[..len]);
                }
            }
        } else {
            matrix.transposed_tile(simd, rows, words, out);
        }
    }
}

/// Number of rows of the memory between a row and the one that is prefetched while it is packed.
const AHEAD: usize = 16;

/// Packs tiles that lie side by side in memory, on any path.
pub(super) struct LayTiles<'a, 'm, E> {
    pub(super) matrix: &'a Matrix<'m, E>,
    pub(super) rows: Range<usize>,
    pub(super) size: usize,
    pub(super) words: Range<usize>,
    pub(super) path: ProductPath,
    pub(super) out: &'a mut [u32],
    pub(super) room: usize,
}

impl<E: Element> VectorWork for LayTiles<'_, '_, E> {
    type Output = ();

    /// Reads a row of the memory for all tiles before the next one. Rows that are a power of two apart share few sets
    /// of a cache, so that a second visit would not find them there.
    #[inline(always)]
    fn run_with_vectors<V: Vectors>(self, simd: V) {
        let Self { matrix, rows, size, words, path, out, room } = self;
        let tiles = rows.clone().step_by(size);
        let tiles = tiles.map(|start| start..matrix.indices.min(start + BLOCK));
        if path.tile_words::<E>() > 1 {
            for (i, term) in (words.start * E::TERMS..words.end * E::TERMS).enumerate() {
                matrix.prefetch_indices(term + AHEAD, &rows);
                for (indices, out) in tiles.clone().zip(out.chunks_exact_mut(room)) {
                    let out = &mut out.as_chunks_mut::<BLOCK>().0[i];
                    matrix.wide_indices_of(simd, term, &indices, out);
                }
            }
        } else {
            for (i, word) in words.enumerate() {
                for term in word * E::TERMS..(word + 1) * E::TERMS {
                    matrix.prefetch_indices(term + AHEAD, &rows);
                }
                for (indices, out) in tiles.clone().zip(out.chunks_exact_mut(room)) {
                    let out = &mut out.as_chunks_mut::<BLOCK>().0[i];
                    matrix.indices_of(simd, word, &indices, out);
                }
            }
        }
    }
}

/// Packs [`Matrix::pack_panel`] on any path.
pub(super) struct LayPanel<'a, 'm, E> {
    pub(super) matrix: &'a Matrix<'m, E>,
    pub(super) columns: Range<usize>,
    pub(super) words: Range<usize>,
    pub(super) out: &'a mut [u32],
    /// Words of `out` from one word of a column to its next, and from the first columns to the others.
    pub(super) strides: (usize, usize),
    /// True if the inner loop widens terms.
    pub(super) widened: bool,
}

impl<E: Element> VectorWork for LayPanel<'_, '_, E> {
    type Output = ();

    #[inline(always)]
    fn run_with_vectors<V: Vectors>(self, simd: V) {
        let Self { matrix, columns, words, out, strides, widened } = self;
        match matrix.order {
            MemoryOrder::Terms => matrix.transposed_panel(simd, columns, words, out, strides),
            MemoryOrder::Indices => matrix.straight_panel(simd, columns, words, out, strides),
        }
        if E::SEPARATE && widened {
            for words in V::as_mut_simd_u32s(out).0 {
                *words = simd.separate_halves(*words);
            }
        }
    }
}

impl<E: Element> Matrix<'_, E> {
    /// Prefetches one term of some indices, if those are consecutive. The term may lie past the end of the sum.
    #[inline(always)]
    fn prefetch_indices(&self, term: usize, indices: &Range<usize>) {
        let start = self.data.as_ptr().wrapping_add(term * self.indices);
        let lines = indices.clone().step_by(BLOCK).chain(indices.clone().last());
        lines.for_each(|index| prefetch_line(start.wrapping_add(index)));
    }

    /// Returns the words of one index from `first` on, if its terms are consecutive.
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
            rest[0] = last.first().map_or(0, |&last| E::pack_word(last, 0.0));
        }
    }

    /// Returns [`Matrix::terms_of`] with one word for each term.
    #[inline(always)]
    fn wide_terms_of<V: Vectors>(&self, simd: V, index: usize, first: usize, out: &mut [u32]) {
        let terms = &self.data[index * self.terms..(index + 1) * self.terms];
        let terms = &terms[(first * E::TERMS).min(self.terms)..];
        let (out, rest) = out.split_at_mut(terms.len().min(out.len()));
        round_terms::<E, V>(simd, &terms[..out.len()], out);
        rest.fill(0);
    }

    /// Returns one term of some indices, if those are consecutive.
    #[inline(always)]
    fn term_of(&self, term: usize, indices: &Range<usize>) -> &[f32] {
        &self.data[term * self.indices..][indices.clone()]
    }

    /// Returns one word of some indices, if those are consecutive. The rest of `out`, and words past the end of the
    /// sum, are zero.
    #[inline(always)]
    fn indices_of<V: Vectors>(
        &self,
        simd: V,
        word: usize,
        indices: &Range<usize>,
        out: &mut [u32; BLOCK],
    ) {
        let (low, high) = (word * E::TERMS, (word + 1) * E::TERMS - 1);
        // A copy of known length needs no call.
        if E::TERMS == 1 && indices.len() == BLOCK && low < self.terms {
            let bits = term_bits(self.term_of(low, indices));
            *out = *bits.first_chunk().expect("a word for each index");
            return;
        }
        let (set, rest) = out.split_at_mut(indices.len());
        rest.fill(0);
        if low >= self.terms {
            return set.fill(0);
        }
        if E::TERMS == 1 {
            set.copy_from_slice(term_bits(self.term_of(low, indices)));
        } else if high < self.terms {
            pair_words::<E, V>(simd, self.term_of(low, indices), self.term_of(high, indices), set);
        } else {
            let ends = self.term_of(low, indices);
            set.iter_mut().zip(ends).for_each(|(out, &l)| *out = E::pack_word(l, 0.0));
        }
    }

    /// Returns one rounded term of some indices, if those are consecutive. The rest of `out`, and terms past the end of
    /// the sum, are zero.
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
            round_terms::<E, V>(simd, self.term_of(term, indices), set);
        } else {
            set.fill(0);
        }
    }

    /// Packs blocks of 16 rows and 16 words. Each is read along the rows and transposed.
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
                simd.transpose_block(&mut block);
                for (out, turned) in out.chunks_exact_mut(stride).zip(&block[..have]) {
                    // The gap has room for the excess of the last block.
                    out[at..at + BLOCK].copy_from_slice(turned);
                }
            }
        }
    }

    /// Packs words one after the other, if indices are consecutive.
    #[inline(always)]
    fn straight_panel<V: Vectors>(
        &self,
        simd: V,
        columns: Range<usize>,
        words: Range<usize>,
        out: &mut [u32],
        (stride, half): (usize, usize),
    ) {
        let middle = columns.end.min(columns.start + BLOCK);
        for (i, word) in words.enumerate() {
            for term in word * E::TERMS..(word + 1) * E::TERMS {
                self.prefetch_indices(term + AHEAD, &columns);
            }
            let halves = [columns.start..middle, middle..columns.end];
            for (at, columns) in [i * stride, i * stride + half].into_iter().zip(halves) {
                let out = out[at..].first_chunk_mut::<BLOCK>().expect("a word of half a panel");
                self.indices_of(simd, word, &columns, out);
            }
        }
    }

    /// Packs blocks of 16 columns and 16 words. Each is read along the terms and transposed.
    #[inline(always)]
    fn transposed_panel<V: Vectors>(
        &self,
        simd: V,
        columns: Range<usize>,
        words: Range<usize>,
        out: &mut [u32],
        (stride, half): (usize, usize),
    ) {
        for i in 0..2 {
            let first = columns.start + i * BLOCK;
            let have = columns.end.saturating_sub(first).min(BLOCK);
            let places = (i * half..).step_by(BLOCK * stride);
            for (start, place) in words.clone().step_by(BLOCK).zip(places) {
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
                simd.transpose_block(&mut block);
                let places = (place..).step_by(stride);
                for (place, turned) in places.zip(&block[..words.end.min(start + BLOCK) - start]) {
                    out[place..place + BLOCK].copy_from_slice(turned);
                }
            }
        }
    }
}

/// Returns the words that consecutive terms fill completely.
#[inline(always)]
fn copy_words<E: Element, V: Vectors>(simd: V, terms: &[f32], out: &mut [u32]) {
    assert_eq!(terms.len(), out.len() * E::TERMS, "terms fill their words");
    if E::TERMS == 1 {
        return out.copy_from_slice(term_bits(terms));
    }
    let (out, last_out) = out.as_chunks_mut::<BLOCK>();
    let (terms, last_terms) = terms.as_chunks::<{ 2 * BLOCK }>();
    for (out, terms) in out.iter_mut().zip(terms) {
        simd.pair_terms::<E>(terms, out);
    }
    for (out, terms) in last_out.iter_mut().zip(last_terms.as_chunks::<2>().0) {
        *out = E::pack_word(terms[0], terms[1]);
    }
}

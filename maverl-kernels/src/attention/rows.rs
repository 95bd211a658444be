//! Memory layouts of keys and values.

use std::ops::Range;

use super::blocks::{CacheBlock, CacheBlocks};
use crate::lanes::LANES;
use crate::matmul::prefetch_line;

/// Elements of a cache line.
const LINE: usize = 16;

/// Keys of one sequence.
#[derive(Clone, Copy)]
pub(super) enum SequenceKeys<'a> {
    /// Consecutive rows.
    Rows(&'a [f32]),
    /// Blocks `ids` of `storage`; the keys of each block begin at `at`.
    Blocks { storage: &'a [CacheBlock], ids: &'a [u32], at: usize },
}

impl<'a> SequenceKeys<'a> {
    /// Returns the keys from token `first` on, which begins a block; rows have `width` elements.
    #[inline(always)]
    pub(super) fn skip_tokens(self, first: usize, width: usize) -> Self {
        match self {
            Self::Rows(rows) => Self::Rows(&rows[first * width..]),
            Self::Blocks { storage, ids, at } => {
                Self::Blocks { storage, ids: &ids[first / LANES..], at }
            }
        }
    }

    pub(super) fn from_blocks(blocks: &CacheBlocks<'a>, ids: &'a [u32]) -> Self {
        Self::Blocks { storage: blocks.storage, ids, at: blocks.keys }
    }

    /// Overwrites the first rows of `out [.., columns]` by some columns of the keys of `tokens`, which are counted along a
    /// path, if there is one. In blocks, the first token begins one.
    pub(super) fn copy_columns(
        self,
        (path, width): (&[Range<usize>], usize),
        columns: Range<usize>,
        tokens: Range<usize>,
        out: &mut [f32],
    ) {
        match self {
            Self::Rows(rows) => copy_rows(rows, (path, width), columns, tokens, out),
            Self::Blocks { storage, ids, at } => {
                let dim = columns.len();
                let (ids, outs) = (&ids[tokens.start / LANES..], out.chunks_mut(LANES * dim));
                for ((&id, out), first) in ids.iter().zip(outs).zip(tokens.clone().step_by(LANES)) {
                    let keys = &storage[id as usize].read()[at + columns.start * LANES..];
                    let rows = out.chunks_exact_mut(dim).take(tokens.end - first).enumerate();
                    for (token, out) in rows {
                        let lines = keys.as_chunks::<LANES>().0;
                        out.iter_mut().zip(lines).for_each(|(out, keys)| *out = keys[token]);
                    }
                }
            }
        }
    }

    /// Returns the elements of the keys of a block, sixteen keys each; none of rows.
    #[inline(always)]
    pub(super) fn group_at(self, block: usize) -> &'a [[f32; LANES]] {
        let Self::Blocks { storage, ids, at } = self else { return &[] };
        storage[ids[block] as usize].read()[at..].as_chunks().0
    }

    /// Prefetches a part of the keys of a block, if the block exists. Loading a block from memory takes longer than one
    /// query computes on it.
    #[inline(always)]
    pub(super) fn prefetch_keys(self, block: usize, part: Range<usize>) {
        let Self::Blocks { storage, ids, at } = self else { return };
        let Some(block) = ids.get(block).map(|&id| storage[id as usize].read().as_ptr()) else {
            return;
        };
        part.step_by(LINE).for_each(|i| prefetch_line(block.wrapping_add(at + i)));
    }
}

/// Rows of values of one sequence, consecutive or in blocks.
#[derive(Clone, Copy)]
pub(super) enum SequenceValues<'a> {
    Whole(&'a [f32]),
    /// Blocks `ids` of `storage`; the rows of each block begin at `at`.
    Blocks {
        storage: &'a [CacheBlock],
        ids: &'a [u32],
        at: usize,
    },
}

impl<'a> SequenceValues<'a> {
    /// Returns the values from token `first` on, which begins a block; rows have `width` elements.
    #[inline(always)]
    pub(super) fn skip_tokens(self, first: usize, width: usize) -> Self {
        match self {
            Self::Whole(rows) => Self::Whole(&rows[first * width..]),
            Self::Blocks { storage, ids, at } => {
                Self::Blocks { storage, ids: &ids[first / LANES..], at }
            }
        }
    }

    /// Returns the values of a sequence.
    pub(super) fn from_blocks(blocks: &CacheBlocks<'a>, ids: &'a [u32]) -> Self {
        Self::Blocks { storage: blocks.storage, ids, at: blocks.values }
    }

    /// Prefetches some columns of the rows of `width`, like [`SequenceKeys::prefetch_keys`].
    #[inline(always)]
    pub(super) fn prefetch_values(self, block: usize, width: usize, columns: Range<usize>) {
        let Self::Blocks { storage, ids, at } = self else { return };
        let Some(block) = ids.get(block).map(|&id| storage[id as usize].read().as_ptr()) else {
            return;
        };
        for row in 0..LANES {
            let start = at + row * width;
            columns
                .clone()
                .step_by(LINE)
                .for_each(|i| prefetch_line(block.wrapping_add(start + i)));
        }
    }

    /// Returns the rows of `width` from row `first` on, up to row `end`, that are contiguous in memory, and their number.
    /// In blocks, `first` is the first row of one.
    #[inline(always)]
    pub(super) fn contiguous_rows(
        self,
        first: usize,
        end: usize,
        width: usize,
    ) -> (&'a [f32], usize) {
        match self {
            Self::Whole(rows) => (&rows[first * width..end * width], end - first),
            Self::Blocks { storage, ids, at } => {
                let rows = LANES.min(end - first);
                (&storage[ids[first / LANES] as usize].read()[at..][..rows * width], rows)
            }
        }
    }

    /// Overwrites the first rows of `out` like [`SequenceKeys::copy_columns`].
    pub(super) fn copy_columns(
        self,
        (path, width): (&[Range<usize>], usize),
        columns: Range<usize>,
        tokens: Range<usize>,
        out: &mut [f32],
    ) {
        if let Self::Whole(rows) = self {
            return copy_rows(rows, (path, width), columns, tokens, out);
        }
        for (token, out) in tokens.zip(out.chunks_exact_mut(columns.len())) {
            out.copy_from_slice(&self.row_at(token, width)[columns.clone()]);
        }
    }

    /// Returns a row of `width`.
    #[inline(always)]
    pub(super) fn row_at(self, row: usize, width: usize) -> &'a [f32] {
        match self {
            Self::Whole(rows) => &rows[row * width..][..width],
            Self::Blocks { storage, ids, at } => {
                &storage[ids[row / LANES] as usize].read()[at + row % LANES * width..][..width]
            }
        }
    }
}

/// Overwrites the first rows of `out` by some columns of the rows of `tokens`, which are counted along a path, if there is one.
fn copy_rows(
    rows: &[f32],
    (path, width): (&[Range<usize>], usize),
    columns: Range<usize>,
    tokens: Range<usize>,
    out: &mut [f32],
) {
    let whole = 0..rows.len() / width;
    let path = if path.is_empty() { std::slice::from_ref(&whole) } else { path };
    let mut out = out.chunks_exact_mut(columns.len());
    let mut before = 0;
    for part in path {
        let here = tokens.start.max(before)..tokens.end.min(before + part.len());
        for (token, out) in here.zip(&mut out) {
            let at = (part.start + token - before) * width;
            out.copy_from_slice(&rows[at..][columns.clone()]);
        }
        before += part.len();
    }
}

//! Keys and values as they lie in memory.

use std::ops::Range;

use super::Blocks;
use crate::lanes::LANES;
use crate::matmul::prefetch;

/// Elements of a cache line.
const LINE: usize = 16;

/// Keys of one sequence.
#[derive(Clone, Copy)]
pub(super) enum Keys<'a> {
    /// Rows one after the other.
    Rows(&'a [f32]),
    /// `ids` of blocks of `storage`, the keys of each from `at` on.
    Blocks { storage: &'a [Box<[f32]>], ids: &'a [u32], at: usize },
}

impl<'a> Keys<'a> {
    pub(super) fn of(blocks: &Blocks<'a>, ids: &'a [u32]) -> Self {
        Self::Blocks { storage: blocks.storage, ids, at: blocks.keys }
    }

    /// Asks for a part of the keys of a block, if there is such a block: what one query reads of it is far less than
    /// memory takes to come.
    #[inline(always)]
    pub(super) fn prefetch(self, block: usize, part: Range<usize>) {
        let Self::Blocks { storage, ids, at } = self else { return };
        let Some(block) = ids.get(block).map(|&id| storage[id as usize].as_ptr()) else { return };
        part.step_by(LINE).for_each(|i| prefetch(block.wrapping_add(at + i)));
    }
}

/// Rows of values of one sequence, one after the other or in blocks.
#[derive(Clone, Copy)]
pub(super) enum Rows<'a> {
    Whole(&'a [f32]),
    /// `ids` of blocks of `storage`, the rows of each from `at` on.
    Blocks {
        storage: &'a [Box<[f32]>],
        ids: &'a [u32],
        at: usize,
    },
}

impl<'a> Rows<'a> {
    /// The values of a sequence.
    pub(super) fn of(blocks: &Blocks<'a>, ids: &'a [u32]) -> Self {
        Self::Blocks { storage: blocks.storage, ids, at: blocks.values }
    }

    /// [`Keys::prefetch`], for some columns of the rows of `width`.
    #[inline(always)]
    pub(super) fn prefetch(self, block: usize, width: usize, columns: Range<usize>) {
        let Self::Blocks { storage, ids, at } = self else { return };
        let Some(block) = ids.get(block).map(|&id| storage[id as usize].as_ptr()) else { return };
        for row in 0..LANES {
            let start = at + row * width;
            columns.clone().step_by(LINE).for_each(|i| prefetch(block.wrapping_add(start + i)));
        }
    }

    /// The first `rows` rows of `width` in runs that lie together. Every run but the last is of whole groups of lanes.
    #[inline(always)]
    pub(super) fn runs(self, rows: usize, width: usize) -> impl Iterator<Item = &'a [f32]> {
        let total = rows * width;
        let step = match self {
            Self::Whole(_) => total,
            Self::Blocks { .. } => LANES * width,
        };
        (0..total).step_by(step.max(1)).enumerate().map(move |(i, done)| match self {
            Self::Whole(rows) => &rows[..total],
            Self::Blocks { storage, ids, at } => {
                &storage[ids[i] as usize][at..at + step.min(total - done)]
            }
        })
    }

    /// A row of `width`.
    #[inline(always)]
    pub(super) fn row(self, row: usize, width: usize) -> &'a [f32] {
        match self {
            Self::Whole(rows) => &rows[row * width..][..width],
            Self::Blocks { storage, ids, at } => {
                &storage[ids[row / LANES] as usize][at + row % LANES * width..][..width]
            }
        }
    }
}

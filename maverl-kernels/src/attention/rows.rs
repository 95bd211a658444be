//! Rows of keys or values as they lie in memory.

use super::Blocks;

/// Rows of keys or values of one sequence, one after the other or in blocks.
#[derive(Clone, Copy)]
pub(super) enum Rows<'a> {
    Whole(&'a [f32]),
    /// `ids` of blocks of `storage`, the rows of each at `at..at + len`.
    Blocks {
        storage: &'a [Box<[f32]>],
        ids: &'a [u32],
        at: usize,
        len: usize,
    },
}

impl<'a> Rows<'a> {
    /// The keys of a sequence.
    pub(super) fn keys(blocks: &Blocks<'a>, ids: &'a [u32], width: usize) -> Self {
        let Blocks { storage, tokens, keys, .. } = *blocks;
        Self::Blocks { storage, ids, at: keys, len: tokens * width }
    }

    /// The values of a sequence.
    pub(super) fn values(blocks: &Blocks<'a>, ids: &'a [u32], width: usize) -> Self {
        let Blocks { storage, tokens, values, .. } = *blocks;
        Self::Blocks { storage, ids, at: values, len: tokens * width }
    }

    /// The first `rows` rows of `width` in runs that lie together. Every run but the last is of whole groups of lanes.
    #[inline(always)]
    pub(super) fn runs(self, rows: usize, width: usize) -> impl Iterator<Item = &'a [f32]> {
        let total = rows * width;
        let step = match self {
            Self::Whole(_) => total,
            Self::Blocks { len, .. } => len,
        };
        (0..total).step_by(step.max(1)).enumerate().map(move |(i, done)| match self {
            Self::Whole(rows) => &rows[..total],
            Self::Blocks { storage, ids, at, .. } => {
                &storage[ids[i] as usize][at..at + step.min(total - done)]
            }
        })
    }
}

//! Keys and values of a head, and the queries that use it.

use std::ops::Range;

use crate::attention::rows::{SequenceKeys, SequenceValues};
use crate::attention::shapes::Heads;
use crate::lanes::LANES;

/// A key head with its values.
pub(super) struct HeadGroup<'a> {
    pub(super) k: SequenceKeys<'a>,
    pub(super) v: SequenceValues<'a>,
    /// Transposed keys of this head, if `k` has rows.
    pub(super) transposed: &'a [f32],
    pub(super) heads: Heads,
    pub(super) head: usize,
    /// Elements of a row of queries, and those of this group.
    pub(super) qw: usize,
    pub(super) columns: Range<usize>,
    pub(super) sinks: &'a [f32],
    /// True if the keys are read for one token only, so that prefetching pays.
    pub(super) alone: bool,
}

impl HeadGroup<'_> {
    /// Prefetches a group of sixteen values of `v`, and the `next` group of keys.
    #[inline(always)]
    pub(super) fn prefetch_group(&self, v: SequenceValues<'_>, values: usize, next: usize) {
        let (dim, at) = (self.heads.dim, self.head * self.heads.dim);
        self.k.prefetch_keys(next, at * LANES..(at + dim) * LANES);
        v.prefetch_values(values, self.heads.kv_width(), at..at + dim);
    }

    /// Returns the `i`-th group of sixteen keys, `[dim, 16]`.
    #[inline(always)]
    pub(super) fn key_group(&self, i: usize) -> &[f32] {
        let Self { k, heads, head, .. } = *self;
        let size = heads.dim * LANES;
        match k {
            SequenceKeys::Rows(_) => &self.transposed[i * size..][..size],
            SequenceKeys::Blocks { storage, ids, at } => {
                &storage[ids[i] as usize].read()[at + head * size..][..size]
            }
        }
    }
}

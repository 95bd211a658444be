//! Forward pass of rollout: new tokens on top of the cache.
//!
//! Between two attentions, tokens do not depend on each other. If a thread has enough rows that its products are not
//! limited by memory, each thread takes its own rows through all operations between two attentions. Threads then
//! synchronize once per layer, not once per product.

use std::borrow::Cow;
use std::mem;
use std::ops::Range;

use maverl_kernels::alone;
use maverl_kernels::attention::{Segment, attention_cached};
use rayon::prelude::*;

use super::Decoder;
use crate::model::kv::KvStore;
use crate::model::pool::{Pool, Share};

/// Bytes of packed weights that fit a cache shared by all threads.
const CACHED_WEIGHTS: usize = 32 << 20;
/// Rows per thread from which reading weights from that cache costs less than computing with them.
const LEAST_ROWS: usize = 8;
/// Rows per thread from which reading weights from memory costs less than computing with them.
const MANY_ROWS: usize = 32;

impl Decoder {
    /// Computes the hidden states `[N, D]` of each segment's new tokens, and writes their keys and values to its
    /// blocks.
    pub(super) fn cached(
        &self,
        ids: &[u32],
        positions: &[u32],
        store: &mut KvStore,
        segments: &[Segment<'_>],
        pool: &mut Pool,
    ) -> Vec<f32> {
        let mut hidden = pool.take(ids.len() * self.config.hidden_size);
        let size = ids.len().div_ceil(self.parts(ids.len())).max(1);
        let shares = pool.shares(ids.len().div_ceil(size));
        let tokens = |part: usize| part * size..ids.len().min((part + 1) * size);
        each(shares, |part, Share { pool, x, projected }| {
            *x = self.embed(&ids[tokens(part)], pool);
            *projected = self.project(0, x, &positions[tokens(part)], pool);
        });
        for index in 0..self.layers.len() {
            for (part, Share { projected, .. }) in shares.iter().enumerate() {
                let segments = cut(segments, tokens(part));
                store.append(index, &projected.k, &projected.v, &segments);
            }
            each(shares, |part, share| {
                let segments = cut(segments, tokens(part));
                self.advance(index, share, &positions[tokens(part)], &segments, store);
            });
        }
        for (share, hidden) in
            shares.iter_mut().zip(hidden.chunks_mut(size * self.config.hidden_size))
        {
            hidden.copy_from_slice(&share.x);
            share.pool.give([mem::take(&mut share.x)]);
        }
        hidden
    }

    /// Returns the number of parts into which the rows are split for the layers.
    fn parts(&self, rows: usize) -> usize {
        let bytes: usize = self.linears().map(|linear| linear.packed_bytes(self.precision)).sum();
        let least = if bytes <= CACHED_WEIGHTS { LEAST_ROWS } else { MANY_ROWS };
        match rayon::current_num_threads() {
            threads if rows >= least * threads => threads,
            _ => 1,
        }
    }

    /// Computes attention and the rest of layer `index`, and the first part of the next layer; after the last layer,
    /// the last norm.
    fn advance(
        &self,
        index: usize,
        share: &mut Share,
        positions: &[u32],
        segments: &[Segment<'_>],
        store: &KvStore,
    ) {
        let Share { pool, x, projected } = share;
        let mut attended = pool.take(projected.q.len());
        attention_cached(&projected.q, store.layer(index), segments, self.heads(), &mut attended);
        let (input, given) = (mem::take(x), mem::take(projected));
        let (out, saved) = self.after_attention(index, input, given, attended, pool);
        let input = saved.keep_input(pool);
        pool.give([input]);
        if index + 1 < self.layers.len() {
            *projected = self.project(index + 1, &out, positions, pool);
            *x = out;
        } else {
            *x = self.last_norm(&out, pool);
            pool.give([out]);
        }
    }
}

/// Runs several parts at once, each on one thread, or a single part on all threads.
fn each(shares: &mut [Share], f: impl Fn(usize, &mut Share) + Sync) {
    match shares {
        [share] => f(0, share),
        shares => {
            let parts = shares.par_iter_mut().with_max_len(1).enumerate();
            parts.for_each(|(part, share)| alone(|| f(part, share)));
        }
    }
}

/// Returns the segments of a range of new tokens. A segment that continues beyond the range is cut at its end.
fn cut<'s, 'a>(segments: &'s [Segment<'a>], tokens: Range<usize>) -> Cow<'s, [Segment<'a>]> {
    if segments.iter().all(|segment| segment.new_tokens == 1) {
        return Cow::Borrowed(&segments[tokens]);
    }
    let mut start = 0;
    let parts = segments.iter().filter_map(|segment| {
        let new = start..start + segment.new_tokens;
        start = new.end;
        let (first, end) = (new.start.max(tokens.start), new.end.min(tokens.end));
        let part = Segment {
            new_tokens: end.checked_sub(first)?,
            len: segment.len + end - new.end,
            ..*segment
        };
        (part.new_tokens > 0).then_some(part)
    });
    Cow::Owned(parts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_cut_where_the_tokens_are() {
        let blocks = [7];
        let segment = |new_tokens, len| Segment { new_tokens, len, blocks: &blocks };
        let all = [segment(2, 5), segment(0, 4), segment(4, 4), segment(1, 9)];
        let lens = |tokens| {
            let cut = cut(&all, tokens);
            cut.iter().map(|segment| (segment.new_tokens, segment.len)).collect::<Vec<_>>()
        };
        assert_eq!(lens(0..7), [(2, 5), (4, 4), (1, 9)]);
        assert_eq!(lens(0..4), [(2, 5), (2, 2)]);
        assert_eq!(lens(4..7), [(2, 4), (1, 9)]);
        assert_eq!(lens(3..4), [(1, 2)]);
        let decoding = [segment(1, 5), segment(1, 4), segment(1, 9)];
        assert!(matches!(cut(&decoding, 1..3), Cow::Borrowed([_, last]) if last.len == 9));
    }
}

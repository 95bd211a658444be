//! The forward pass of rollout: new tokens on top of what the cache has.
//!
//! Between two attentions nothing of a token depends on another token, so where the products of one thread's rows are not
//! waiting for memory, every thread takes rows of its own through all of that at once: one meeting of the threads a layer,
//! not one for each product.

use std::mem;
use std::ops::Range;

use maverl_kernels::alone;
use maverl_kernels::attention::{Segment, attention_cached};
use rayon::prelude::*;

use super::{Decoder, Projected};
use crate::model::kv::KvStore;
use crate::model::pool::Pool;

/// Bytes of packed weights that stay in a cache which all threads read.
const CACHED_WEIGHTS: usize = 32 << 20;
/// Rows of a thread from which reading weights out of that cache costs less than computing with them.
const LEAST_ROWS: usize = 8;
/// The same for weights in memory.
const MANY_ROWS: usize = 64;

/// Consecutive tokens on their way through the layers.
struct Part<'a> {
    x: Vec<f32>,
    projected: Projected,
    ids: &'a [u32],
    positions: &'a [u32],
    segments: Vec<Segment<'a>>,
    pool: &'a mut Pool,
}

impl Decoder {
    /// Hidden states `[N, D]` of each segment's new tokens, whose keys and values are written to its blocks.
    pub(super) fn cached(
        &self,
        ids: &[u32],
        positions: &[u32],
        store: &mut KvStore,
        segments: &[Segment<'_>],
        pool: &mut Pool,
    ) -> Vec<f32> {
        let mut hidden = pool.take(ids.len() * self.config.hidden_size);
        let parts = self.parts(ids.len());
        let size = ids.len().div_ceil(parts);
        let starts = (0..ids.len()).step_by(size.max(1));
        let pools = pool.shares(starts.len());
        let mut parts: Vec<Part<'_>> = starts
            .zip(pools)
            .map(|(start, pool)| {
                let tokens = start..ids.len().min(start + size);
                Part {
                    x: Vec::new(),
                    projected: Projected::default(),
                    ids: &ids[tokens.clone()],
                    positions: &positions[tokens.clone()],
                    segments: cut(segments, tokens),
                    pool,
                }
            })
            .collect();
        each(&mut parts, |part| {
            part.x = self.embed(part.ids, part.pool);
            part.projected = self.project(0, &part.x, part.positions, part.pool);
        });
        for index in 0..self.layers.len() {
            for Part { projected, segments, .. } in &parts {
                store.append(index, &projected.k, &projected.v, segments);
            }
            each(&mut parts, |part| self.advance(index, part, store));
        }
        for (part, hidden) in
            parts.iter_mut().zip(hidden.chunks_mut(size * self.config.hidden_size))
        {
            hidden.copy_from_slice(&part.x);
            part.pool.give([mem::take(&mut part.x)]);
        }
        hidden
    }

    /// In how many parts to take rows through the layers.
    fn parts(&self, rows: usize) -> usize {
        let bytes: usize = self.linears().map(|linear| linear.packed_bytes(self.precision)).sum();
        let least = if bytes <= CACHED_WEIGHTS { LEAST_ROWS } else { MANY_ROWS };
        match rayon::current_num_threads() {
            threads if rows >= least * threads => threads,
            _ => 1,
        }
    }

    /// Attention and the rest of layer `index`, and the beginning of the next; after the last its norm.
    fn advance(&self, index: usize, part: &mut Part<'_>, store: &KvStore) {
        let Part { x, projected, segments, positions, pool, .. } = part;
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

/// Several parts at once, each on one thread; one part with all threads.
fn each(parts: &mut [Part<'_>], f: impl Fn(&mut Part<'_>) + Sync) {
    match parts {
        [part] => f(part),
        parts => parts.par_iter_mut().with_max_len(1).for_each(|part| alone(|| f(part))),
    }
}

/// The segments of some of the new tokens; one that goes on after them ends with them.
fn cut<'a>(segments: &[Segment<'a>], tokens: Range<usize>) -> Vec<Segment<'a>> {
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
    parts.collect()
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
    }
}

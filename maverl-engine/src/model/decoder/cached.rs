//! Forward pass of rollout: new tokens on top of the cache.
//!
//! Between two attentions, tokens do not depend on each other. If a thread has enough rows that its products are not
//! limited by memory, each thread takes its own rows through all operations between two attentions. Threads then
//! synchronize once per layer, not once per product.

use std::mem;

use maverl_kernels::alone;
use maverl_kernels::attention::Segment;
use rayon::prelude::*;

use super::Decoder;
use crate::model::ModelError;
use crate::model::ops::Ops;
use crate::model::pool::{Pool, Share};

impl<O: Ops> Decoder<O> {
    /// Computes the hidden states `[N, D]` of each segment's new tokens, and writes their keys and values to its
    /// blocks.
    pub(super) fn cached(
        &self,
        ids: &[u32],
        positions: &[u32],
        kv: &mut O::Kv,
        segments: &[Segment<'_>],
        pool: &mut Pool<O>,
    ) -> Result<O::Act, ModelError> {
        let (ops, n) = (&self.ops, ids.len());
        let all = ops.place_cached(ids, positions, segments)?;
        let size = n.div_ceil(ops.parts(n, self.linears())).max(1);
        let part = |part: usize| ops.part(&all, part * size..n.min((part + 1) * size));
        let mut shares = mem::take(&mut pool.shares);
        let parts = n.div_ceil(size);
        if shares.len() < parts {
            shares.resize_with(parts, Share::default);
        }
        let own = &mut shares[..parts];
        each(own, |index, Share { pool, x, projected, .. }| {
            let at = part(index);
            *x = self.embed(&at, pool)?;
            *projected = self.project(0, x, &at, pool)?;
            Ok(())
        })?;
        for layer in 0..self.layers.len() {
            for (index, Share { projected, .. }) in own.iter().enumerate() {
                ops.append(kv, layer, [&projected.k, &projected.v], &part(index))?;
            }
            each(own, |index, share| self.advance(layer, share, &part(index), kv))?;
        }
        let hidden = ops.join(own, pool);
        pool.shares = shares;
        hidden
    }

    /// Computes attention and the rest of layer `index`, and the first part of the next layer; after the last layer,
    /// the last norm.
    fn advance(
        &self,
        index: usize,
        share: &mut Share<O>,
        at: &O::Placed<'_>,
        kv: &O::Kv,
    ) -> Result<(), ModelError> {
        let Share { pool, x, projected, hidden } = share;
        let attended = self.ops.attend_cached(&projected.q, (kv, index), at, self.heads(), pool)?;
        let (input, given) = (mem::take(x), mem::take(projected));
        let attended = (attended, O::Lse::default());
        let (out, saved) = self.after_attention(index, input, given, attended, pool)?;
        let input = saved.keep_input(pool);
        pool.give_streams([input]);
        if index + 1 < self.layers.len() {
            *projected = self.project(index + 1, &out, at, pool)?;
            *x = out;
        } else {
            *hidden = self.last_norm(&out, pool)?;
            pool.give_streams([out]);
        }
        Ok(())
    }
}

/// Runs several parts at once, each on one thread, or a single part on all threads.
fn each<O: Ops>(
    shares: &mut [Share<O>],
    f: impl Fn(usize, &mut Share<O>) -> Result<(), ModelError> + Sync,
) -> Result<(), ModelError> {
    match shares {
        [share] => f(0, share),
        shares => {
            let parts = shares.par_iter_mut().with_max_len(1).enumerate();
            parts.try_for_each(|(part, share)| alone(|| f(part, share)))
        }
    }
}

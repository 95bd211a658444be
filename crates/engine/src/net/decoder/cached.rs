//! Forward pass of rollout: new tokens on top of the cache, and the tokens that are sampled after them.
//!
//! Tokens of different sequences do not depend on each other. If a thread has enough rows that its products are not
//! limited by memory, each thread takes some sequences through all layers, and threads synchronize once per pass. If a
//! sequence is too long for that, it is cut, and threads synchronize before the mixer of each layer, because its later tokens
//! read the keys and values, or the states, of the earlier ones.
#![allow(unsafe_code)] // threads append to different sequences of one cache

use std::mem;

use maverl_kernels::attention::Segment;
use maverl_kernels::run_alone;
use maverl_kernels::sample::TokenDraw;
use rayon::prelude::*;

use super::Decoder;
use crate::files::ModelError;
use crate::net::ops::{Backend, NewTokens, Ops, TokenChoice};
use crate::net::pool::{Pool, ThreadBuffers};

/// Share of a part's tokens by which the part may be smaller or larger, so that no sequence is cut: one eighth.
const SLACK: usize = 8;

impl<O: Ops> Decoder<O> {
    /// Computes the hidden states `[N, D]` of each segment's new tokens, and writes their keys and values to its
    /// blocks. No two segments have a block in common that receives tokens.
    ///
    /// # Errors
    ///
    /// If an id or position is out of range, or the device fails.
    pub fn decode_cached(
        &self,
        tokens: NewTokens<'_, O>,
        kv: &mut O::Kv,
        pool: &mut Pool<O>,
    ) -> Result<O::Act, ModelError> {
        self.check(tokens.ids, tokens.positions)?;
        let recorded = self.ops.decode(&self.passes.0, tokens, kv, |ops, at, kv| {
            Self { ops: ops.clone(), ..self.clone() }.decode_whole(at, kv)
        })?;
        if let Some(hidden) = recorded {
            return Ok(hidden);
        }
        let (ops, layers, kv) = (&self.ops, 0..self.layers.len(), &*kv);
        let NewTokens { ids, segments, .. } = tokens;
        let all = ops.place_cached(tokens)?;
        let mut shares = mem::take(&mut pool.shares);
        let parts = ops.parts(ids.len(), self.linears());
        if shares.len() < parts {
            shares.resize_with(parts, ThreadBuffers::default);
        }
        let own = &mut shares[..parts];
        if deal(own, ids.len(), segments) {
            each(own, |share| {
                let at = ops.part(&all, share.rows.clone());
                self.begin(share, &at)?;
                layers.clone().try_for_each(|layer| {
                    // SAFETY: the cache is borrowed exclusively, and other threads use other segments.
                    unsafe { self.append(layer, share, &at, kv) }?;
                    self.advance(layer, share, &at, kv)
                })
            })?;
        } else {
            each(own, |share| self.begin(share, &ops.part(&all, share.rows.clone())))?;
            for layer in layers {
                for share in &mut *own {
                    let at = ops.part(&all, share.rows.clone());
                    // SAFETY: the cache is borrowed exclusively, and no other thread uses it.
                    unsafe { self.append(layer, share, &at, kv) }?;
                }
                each(own, |share| {
                    self.advance(layer, share, &ops.part(&all, share.rows.clone()), kv)
                })?;
            }
        }
        let hidden = ops.join(own, pool);
        pool.shares = shares;
        hidden
    }

    /// Computes a pass as one part.
    fn decode_whole(&self, at: &O::Placed<'_>, kv: &O::Kv) -> Result<O::Act, ModelError> {
        let mut share = ThreadBuffers::default();
        self.begin(&mut share, at)?;
        for layer in 0..self.layers.len() {
            // SAFETY: nobody else uses these keys and values.
            unsafe { self.append(layer, &mut share, at, kv) }?;
            self.advance(layer, &mut share, at, kv)?;
        }
        Ok(share.hidden)
    }

    /// Computes the inputs of the first layer's mixer.
    fn begin(&self, share: &mut ThreadBuffers<O>, at: &O::Placed<'_>) -> Result<(), ModelError> {
        let ThreadBuffers { pool, x, inputs, .. } = share;
        *x = self.embed(at, pool)?;
        *inputs = self.layer_pass(0).project(x, at, pool)?;
        Ok(())
    }

    /// Writes the keys and values of layer `index` to the cache, or advances its states.
    ///
    /// # Safety
    ///
    /// Meanwhile, nobody else reads or writes the blocks that receive tokens.
    unsafe fn append(
        &self,
        index: usize,
        ThreadBuffers { inputs, pool, .. }: &mut ThreadBuffers<O>,
        at: &O::Placed<'_>,
        kv: &O::Kv,
    ) -> Result<(), ModelError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.layer_pass(index).advance_cache(inputs, at, (kv, index), pool) }
    }

    /// Computes the rest of layer `index`, and the first part of the next layer; after the last layer, the last norm.
    fn advance(
        &self,
        index: usize,
        share: &mut ThreadBuffers<O>,
        at: &O::Placed<'_>,
        kv: &O::Kv,
    ) -> Result<(), ModelError> {
        let ThreadBuffers { pool, x, inputs, hidden, .. } = share;
        let pass = self.layer_pass(index);
        let m = pass.mix_cached(mem::take(x), mem::take(inputs), at, (kv, index), pool)?;
        let (out, mlp) = pass.mlp(m, pool)?;
        mlp.give(pool);
        if index + 1 < self.layers.len() {
            *inputs = self.layer_pass(index + 1).project(&out, at, pool)?;
            *x = out;
        } else {
            *hidden = self.last_norm(&out, pool)?;
            pool.give_streams([out]);
        }
        Ok(())
    }
}

impl<O: Backend> Decoder<O> {
    /// Samples tokens from the logits of some rows of hidden states `[N, D]`.
    ///
    /// # Errors
    ///
    /// If the device fails, or logits describe no distribution.
    pub fn choose<C: TokenChoice>(
        &self,
        hidden: &O::Act,
        rows: &[u32],
        of: &mut [C],
        pool: &mut Pool<O>,
    ) -> Result<(), ModelError> {
        self.ops.choose(hidden, rows, &self.head, of, pool)
    }

    /// Samples tokens from the logits of some rows of hidden states `[N, D]` by draws that depend on nothing else. A device
    /// need not have sampled them when this returns.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn draw(
        &self,
        hidden: &O::Act,
        rows: &[u32],
        draws: &[TokenDraw],
        pool: &mut Pool<O>,
    ) -> Result<O::Drawn, ModelError> {
        self.ops.draw(hidden, rows, &self.head, draws, pool)
    }
}

/// Deals the tokens of a pass to shares of about equal size. Returns true if no segment is cut.
fn deal<O: Ops>(shares: &mut [ThreadBuffers<O>], tokens: usize, segments: &[Segment<'_>]) -> bool {
    let parts = shares.len();
    let mut ends = segments.iter().scan(0, |end, segment| {
        *end += segment.new_tokens;
        Some(*end)
    });
    let (mut before, mut after, mut start, mut whole) = (0, 0, 0, true);
    for (index, share) in shares.iter_mut().enumerate() {
        let equal = (index + 1) * tokens / parts;
        while after <= equal && before < tokens {
            (before, after) = (after, ends.next().unwrap_or(usize::MAX));
        }
        let near = if equal - before <= after - equal { before } else { after };
        let fits = near.abs_diff(equal) * parts * SLACK <= tokens;
        whole &= fits;
        share.rows = start..if fits { near } else { equal };
        start = share.rows.end;
    }
    whole
}

/// Runs several shares at once, each on one thread, or a single one on all threads.
fn each<O: Ops>(
    shares: &mut [ThreadBuffers<O>],
    f: impl Fn(&mut ThreadBuffers<O>) -> Result<(), ModelError> + Sync,
) -> Result<(), ModelError> {
    match shares {
        [share] => f(share),
        shares => {
            shares.par_iter_mut().with_max_len(1).try_for_each(|share| run_alone(|| f(share)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dealt(parts: usize, new_tokens: &[usize]) -> (Vec<usize>, bool) {
        let mut shares: Vec<ThreadBuffers> = Vec::new();
        shares.resize_with(parts, ThreadBuffers::default);
        let segment = |&new_tokens| Segment { new_tokens, len: new_tokens, blocks: &[], state: 0 };
        let segments: Vec<_> = new_tokens.iter().map(segment).collect();
        let whole = deal(&mut shares, new_tokens.iter().sum(), &segments);
        assert!(shares.windows(2).all(|pair| pair[0].rows.end == pair[1].rows.start));
        assert_eq!(shares[0].rows.start, 0);
        (shares.iter().map(|share| share.rows.end).collect(), whole)
    }

    #[test]
    fn sequences_are_dealt_evenly_and_cut_only_if_the_shares_would_differ_by_more_than_an_eighth() {
        assert_eq!(dealt(1, &[5]), (vec![5], true));
        assert_eq!(dealt(2, &[1; 64]), (vec![32, 64], true));
        assert_eq!(dealt(3, &[1; 64]), (vec![21, 42, 64], true));
        assert_eq!(dealt(2, &[30, 34]), (vec![30, 64], true));
        assert_eq!(dealt(2, &[34, 30]), (vec![34, 64], true));
        assert_eq!(dealt(2, &[20, 44]), (vec![32, 64], false));
        assert_eq!(dealt(2, &[64]), (vec![32, 64], false));
        assert_eq!(dealt(4, &[16, 33, 15]), (vec![16, 32, 49, 64], false));
        assert_eq!(dealt(2, &[1, 0, 1, 0]), (vec![1, 2], true));
    }
}

//! Operations on the CPU: the kernels of `maverl-kernels` over slices of f32.

mod backend;
mod experts;
mod linear;
mod parts;
mod placed;
mod recurrent;

use std::ops::Range;

use maverl_kernels::attention::{Heads, attention, attention_bwd, attention_cached};
use maverl_kernels::logprob::LmHead;
use maverl_kernels::matmul::PackedWeight;
use maverl_kernels::norm::{rms_norm, rms_norm_bwd, rms_norm_bwd_add};
use maverl_kernels::rope::{RopeTable, apply_rope, rope_bwd};
use maverl_kernels::{embedding, mlp};

pub(crate) use linear::project;
pub use placed::Placed;

use super::{Cpu, Done, HeadTurn, NewTokens, Ops, Targets};
use crate::files::hf_config::Frequencies;
use crate::net::gradients::Gradients;
use crate::net::kv::KvStore;
use crate::net::linear::{Linear, OutputHead};
use crate::net::norm::Norm;
use crate::net::pool::{Pool, ThreadBuffers};
use crate::net::rows::Rows;
use crate::net::values::Param;

/// Bytes of packed weights that fit a cache shared by all threads.
const CACHED_WEIGHTS: usize = 32 << 20;
/// Rows per thread from which reading weights from that cache costs less than computing with them.
const LEAST_ROWS: usize = 8;
/// Rows per thread from which reading weights from memory costs less than computing with them.
const MANY_ROWS: usize = 32;

impl Ops for Cpu {
    fn rope(&self, frequencies: &Frequencies, positions: usize) -> Done<RopeTable> {
        Ok(frequencies.table(positions))
    }

    fn place<'a>(&self, rows: Rows<'a>) -> Done<Placed<'a>> {
        Ok(Placed::of_rows(rows))
    }

    fn place_cached<'a>(&self, tokens: NewTokens<'a, Self>) -> Done<Placed<'a>> {
        Ok(Placed::of_cached(tokens))
    }

    fn part<'p>(&self, all: &'p Placed<'_>, tokens: Range<usize>) -> Placed<'p> {
        all.part(tokens)
    }

    fn parts<'l>(&self, tokens: usize, maps: impl Iterator<Item = &'l Linear<Self>>) -> usize {
        let sizes = maps.map(|map| {
            let (outputs, inputs) = map.dims();
            PackedWeight::packed_bytes(self.precision, outputs, inputs)
        });
        let bytes: usize = sizes.sum();
        let least = if bytes <= CACHED_WEIGHTS { LEAST_ROWS } else { MANY_ROWS };
        match rayon::current_num_threads() {
            threads if tokens >= least * threads => threads,
            _ => 1,
        }
    }

    fn join(&self, parts: &mut [ThreadBuffers<Self>], pool: &mut Pool<Self>) -> Done<Vec<f32>> {
        let mut hidden = pool.take(parts.iter().map(|part| part.hidden.len()).sum());
        let mut rest = hidden.as_mut_slice();
        for part in parts {
            let own = std::mem::take(&mut part.hidden);
            let (to, after) = rest.split_at_mut(own.len());
            to.copy_from_slice(&own);
            rest = after;
            part.pool.give([own]);
        }
        Ok(hidden)
    }

    fn pack(&self, weight: &Param) -> PackedWeight {
        let dims = weight.dims();
        PackedWeight::pack(self.precision, &weight.values(), dims[0], dims[1])
    }

    fn gather(&self, table: &Param, at: &Placed<'_>, pool: &mut Pool) -> Done<Vec<f32>> {
        let width = table.dims()[1];
        let mut x = pool.take(at.ids.len() * width);
        embedding::gather_rows(&table.values(), &at.ids, width, &mut x);
        Ok(x)
    }

    fn gather_back(
        &self,
        table: &Param,
        dx: &Vec<f32>,
        at: &Placed<'_>,
        sums: &mut Gradients<'_>,
    ) -> Done<()> {
        if let Some(dtable) = sums.of_embedding(table.slot()) {
            embedding::scatter_add(dx, &at.ids, table.dims()[1], dtable);
        }
        Ok(())
    }

    fn norm(&self, x: &Vec<f32>, norm: &Norm, pool: &mut Pool) -> Done<Vec<f32>> {
        let mut y = pool.take(x.len());
        norm.with_gains(|gains| rms_norm(x, gains, norm.eps, &mut y));
        Ok(y)
    }

    fn norm_back(
        &self,
        x: &Vec<f32>,
        norm: &Norm,
        dy: &Vec<f32>,
        onto: Option<Vec<f32>>,
        sums: &mut Gradients<'_>,
        pool: &mut Pool,
    ) -> Done<Vec<f32>> {
        let dw = sums.of(norm.weight.slot());
        let Some(mut dx) = onto else {
            let mut dx = pool.take(x.len());
            norm.with_gains(|gains| rms_norm_bwd(x, gains, norm.eps, dy, &mut dx, dw));
            return Ok(dx);
        };
        norm.with_gains(|gains| rms_norm_bwd_add(x, gains, norm.eps, dy, &mut dx, dw));
        Ok(dx)
    }

    fn turn(
        &self,
        x: Vec<f32>,
        turn: &HeadTurn<'_, Self>,
        at: &Placed<'_>,
        pool: &mut Pool,
    ) -> Done<(Vec<f32>, Option<Vec<f32>>)> {
        let (mut x, raw) = match turn.norm {
            None => (x, None),
            Some(norm) => (self.norm(&x, norm, pool)?, Some(x)),
        };
        if let Some(rope) = turn.rope {
            apply_rope(&mut x, at.positions, turn.heads, rope);
        }
        Ok((x, raw))
    }

    fn turn_back(
        &self,
        mut dx: Vec<f32>,
        raw: Option<Vec<f32>>,
        turn: &HeadTurn<'_, Self>,
        at: &Placed<'_>,
        sums: &mut Gradients<'_>,
        pool: &mut Pool,
    ) -> Done<Vec<f32>> {
        if let Some(rope) = turn.rope {
            rope_bwd(&mut dx, at.positions, turn.heads, rope);
        }
        let (Some(raw), Some(norm)) = (raw, turn.norm) else { return Ok(dx) };
        let through = self.norm_back(&raw, norm, &dx, None, sums, pool)?;
        pool.give([raw, dx]);
        Ok(through)
    }

    fn swiglu(&self, gate: &Vec<f32>, up: &Vec<f32>, pool: &mut Pool) -> Done<Vec<f32>> {
        let mut act = pool.take(gate.len());
        mlp::swiglu(gate, up, &mut act);
        Ok(act)
    }

    fn swiglu_back(
        &self,
        [gate, up]: [&Vec<f32>; 2],
        dact: &Vec<f32>,
        act: Vec<f32>,
        pool: &mut Pool,
    ) -> Done<[Vec<f32>; 2]> {
        let (mut dgate, mut dup) = (act, pool.take(gate.len()));
        mlp::swiglu_bwd(gate, up, dact, &mut dgate, &mut dup);
        Ok([dgate, dup])
    }

    fn attend(
        &self,
        [q, k, v]: [&Vec<f32>; 3],
        at: &Placed<'_>,
        heads: Heads,
        pool: &mut Pool,
    ) -> Done<(Vec<f32>, ())> {
        let mut out = pool.take(q.len());
        attention(q, k, v, at.packing, heads, &mut out);
        Ok((out, ()))
    }

    fn attend_back(
        &self,
        [q, k, v]: [&Vec<f32>; 3],
        [out, dout]: [&Vec<f32>; 2],
        (): &(),
        at: &Placed<'_>,
        heads: Heads,
        pool: &mut Pool,
    ) -> Done<[Vec<f32>; 3]> {
        let [mut dq, mut dk, mut dv] = [q, k, v].map(|like| pool.take(like.len()));
        attention_bwd(q, k, v, out, dout, at.packing, heads, &mut dq, &mut dk, &mut dv);
        Ok([dq, dk, dv])
    }

    #[allow(unsafe_code)]
    unsafe fn append(
        &self,
        kv: &KvStore,
        layer: usize,
        [k, v]: [&Vec<f32>; 2],
        at: &Placed<'_>,
    ) -> Done<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { kv.append(layer, k, v, &at.segments) };
        Ok(())
    }

    fn attend_cached(
        &self,
        q: &Vec<f32>,
        (kv, layer): (&KvStore, usize),
        at: &Placed<'_>,
        heads: Heads,
        pool: &mut Pool,
    ) -> Done<Vec<f32>> {
        let mut out = pool.take(q.len());
        attention_cached(q, kv.layer(layer), &at.segments, heads, &mut out);
        Ok(out)
    }

    fn logprobs(
        &self,
        hidden: &Vec<f32>,
        head: &OutputHead,
        of: Targets<'_>,
    ) -> Done<(Vec<f32>, Vec<f32>)> {
        let (mut logp, mut entropy) =
            (vec![0.0; of.ids.len()], vec![0.0; of.inv_temperature.len()]);
        let (weight, softcap) = (head.map.weight().values(), head.softcap);
        LmHead { softcap, ..self.head(hidden, &weight, of) }.logprobs(&mut logp, &mut entropy);
        Ok((logp, entropy))
    }

    fn loss(
        &self,
        hidden: &Vec<f32>,
        head: &OutputHead,
        of: Targets<'_>,
        offsets: &[usize],
        loss: impl FnMut(Range<usize>, [&[f32]; 2], [&mut [f32]; 2]) -> Done<()>,
        sums: &mut Gradients<'_>,
    ) -> Done<Vec<f32>> {
        let mut dhidden = vec![0.0; hidden.len()];
        let weight = head.map.weight();
        let dw = sums.of(weight.slot());
        let (weight, softcap) = (weight.values(), head.softcap);
        let head = LmHead { softcap, ..self.head(hidden, &weight, of) };
        head.loss_gradients(offsets, loss, &mut dhidden, dw)?;
        Ok(dhidden)
    }
}

impl Cpu {
    fn head<'a>(self, h: &'a [f32], w: &'a [f32], of: Targets<'a>) -> LmHead<'a> {
        let Targets { ids: targets, inv_temperature } = of;
        LmHead { h, w, targets, inv_temperature, softcap: None, precision: self.precision }
    }
}

//! Operations of all families.

use std::ops::Range;

use candle_core::Tensor;
use maverl_kernels::attention::Heads;

use super::matrix::Matrix;
use super::{
    Candle, CandleAngles, CandleKv, CandlePlaced, CandleTensor, Done, attention, cached, gates,
    rotary,
};
use crate::files::hf_config::Frequencies;
use crate::files::parts::Activation;
use crate::net::gradients::Gradients;
use crate::net::linear::{Linear, OutputHead};
use crate::net::norm::Norm;
use crate::net::ops::{DrawnIds, FROM_HOST, HeadTurn, NewTokens, Ops, Targets};
use crate::net::pool::{Pool, ThreadBuffers};
use crate::net::rows::Rows;
use crate::net::values::Param;

impl Ops for Candle {
    fn rope(&self, frequencies: &Frequencies, _: usize) -> Done<CandleAngles> {
        Ok(CandleAngles::new(frequencies, &self.device))
    }

    fn place<'a>(&self, Rows { ids, positions, packing }: Rows<'a>) -> Done<CandlePlaced<'a>> {
        Ok(CandlePlaced { ids: ids.to_vec(), positions, packing, segments: &[] })
    }

    fn place_cached<'a>(&self, tokens: NewTokens<'a, Self>) -> Done<CandlePlaced<'a>> {
        let NewTokens { positions, segments, .. } = tokens;
        let packing = maverl_kernels::attention::Packing::from_offsets(&[0]);
        Ok(CandlePlaced { ids: ids(tokens), positions, packing, segments })
    }

    fn part<'p>(&self, all: &'p CandlePlaced<'_>, _: Range<usize>) -> CandlePlaced<'p> {
        let CandlePlaced { ids, positions, packing, segments } = all;
        CandlePlaced { ids: ids.clone(), positions, packing: *packing, segments }
    }

    fn parts<'l>(&self, _: usize, _: impl Iterator<Item = &'l Linear<Self>>) -> usize {
        1
    }

    fn join(&self, parts: &mut [ThreadBuffers<Self>], _: &mut Pool<Self>) -> Done<CandleTensor> {
        Ok(parts.first_mut().map(|part| std::mem::take(&mut part.hidden)).unwrap_or_default())
    }

    fn pack(&self, _: &Param<Self>) {}

    fn gather(
        &self,
        table: &Param<Self>,
        at: &CandlePlaced<'_>,
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        let ids = self.upload(at.ids.clone(), at.ids.len())?;
        Ok(Matrix::of(table)?.gather(&ids)?.into())
    }

    fn gather_back(
        &self,
        table: &Param<Self>,
        dx: &CandleTensor,
        at: &CandlePlaced<'_>,
        sums: &mut Gradients<'_, Self>,
    ) -> Done<()> {
        let Some((array, place)) = sums.embedding_place(table.slot()) else { return Ok(()) };
        let width = table.dims()[1];
        // Rows of equal ids are added first, in their order: `index_add` would copy the table.
        let mut distinct = at.ids.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let index = |id: &u32| distinct.partition_point(|of| of < id);
        let rows = self.indices(at.ids.iter().map(index))?;
        let zeros = Tensor::zeros((distinct.len(), width), candle_core::DType::F32, &self.device)?;
        let sums_of_ids = zeros.index_add(&rows, &dx.rows(width)?, 0)?;
        let table = array.narrow(0, place.start, place.len())?.reshape(((), width))?;
        let ids = self.upload(distinct.clone(), distinct.len())?;
        let added = (table.index_select(&ids, 0)? + sums_of_ids)?;
        for (row, id) in distinct.into_iter().enumerate() {
            let row = added.narrow(0, row, 1)?.flatten_all()?;
            array.slice_set(&row, 0, place.start + id as usize * width)?;
        }
        Ok(())
    }

    fn norm(&self, x: &CandleTensor, norm: &Norm<Self>, _: &mut Pool<Self>) -> Done<CandleTensor> {
        Ok(norm.forward(&x.rows(norm.width())?)?.into())
    }

    fn norm_back(
        &self,
        x: &CandleTensor,
        norm: &Norm<Self>,
        dy: &CandleTensor,
        onto: Option<CandleTensor>,
        sums: &mut Gradients<'_, Self>,
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        let width = norm.width();
        let dx = norm.backward(&x.rows(width)?, &dy.rows(width)?, sums)?;
        match onto {
            None => Ok(dx.into()),
            Some(onto) => Ok((onto.rows(width)? + dx)?.into()),
        }
    }

    fn turn(
        &self,
        x: CandleTensor,
        turn: &HeadTurn<'_, Self>,
        at: &CandlePlaced<'_>,
        pool: &mut Pool<Self>,
    ) -> Done<(CandleTensor, Option<CandleTensor>)> {
        let (x, raw) = match turn.norm {
            None => (x, None),
            Some(norm) => (self.norm(&x, norm, pool)?, Some(x)),
        };
        let Some(rope) = turn.rope else { return Ok((x, raw)) };
        Ok((rotate(&x, turn.heads, rope, at, false)?, raw))
    }

    fn turn_back(
        &self,
        dx: CandleTensor,
        raw: Option<CandleTensor>,
        turn: &HeadTurn<'_, Self>,
        at: &CandlePlaced<'_>,
        sums: &mut Gradients<'_, Self>,
        pool: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        let dx = match turn.rope {
            None => dx,
            Some(rope) => rotate(&dx, turn.heads, rope, at, true)?,
        };
        let (Some(raw), Some(norm)) = (raw, turn.norm) else { return Ok(dx) };
        self.norm_back(&raw, norm, &dx, None, sums, pool)
    }

    fn swiglu(
        &self,
        gate: &CandleTensor,
        up: &CandleTensor,
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        Ok(gates::gated(Activation::Silu, &gate.rows(1)?, &up.rows(1)?)?.into())
    }

    fn swiglu_back(
        &self,
        [gate, up]: [&CandleTensor; 2],
        dact: &CandleTensor,
        _: CandleTensor,
        _: &mut Pool<Self>,
    ) -> Done<[CandleTensor; 2]> {
        gated_back(Activation::Silu, [gate, up], dact)
    }

    fn attend(
        &self,
        qkv: [&CandleTensor; 3],
        at: &CandlePlaced<'_>,
        heads: Heads,
        _: &mut Pool<Self>,
    ) -> Done<(CandleTensor, ())> {
        let [q, k, v] = projected(qkv, heads)?;
        Ok((attention::attend([&q, &k, &v], at.packing, (heads, None))?.into(), ()))
    }

    fn attend_back(
        &self,
        qkv: [&CandleTensor; 3],
        out: [&CandleTensor; 2],
        (): &(),
        at: &CandlePlaced<'_>,
        heads: Heads,
        _: &mut Pool<Self>,
    ) -> Done<[CandleTensor; 3]> {
        let [dq, dk, dv, _] = attend_back(qkv, out, at, (heads, None))?;
        Ok([dq, dk, dv].map(CandleTensor::from))
    }

    #[allow(unsafe_code)]
    unsafe fn append(
        &self,
        kv: &CandleKv,
        layer: usize,
        [k, v]: [&CandleTensor; 2],
        at: &CandlePlaced<'_>,
    ) -> Done<()> {
        let to = kv.layer(layer)?;
        let width = to[0].dims()[1];
        Ok(cached::append([&k.rows(width)?, &v.rows(width)?], to, at.segments)?)
    }

    fn attend_cached(
        &self,
        q: &CandleTensor,
        (kv, layer): (&CandleKv, usize),
        at: &CandlePlaced<'_>,
        heads: Heads,
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        let q = q.rows(heads.q * heads.dim)?;
        Ok(cached::attend(&q, kv.layer(layer)?, at.segments, (heads, None))?.into())
    }

    fn logprobs(
        &self,
        hidden: &CandleTensor,
        head: &OutputHead<Self>,
        of: Targets<'_>,
    ) -> Done<(Vec<f32>, Vec<f32>)> {
        let [logp, entropy] = self.score_rows(hidden, head, of)?;
        Ok((logp, entropy))
    }

    fn loss(
        &self,
        hidden: &CandleTensor,
        head: &OutputHead<Self>,
        of: Targets<'_>,
        offsets: &[usize],
        loss: impl FnMut(Range<usize>, [&[f32]; 2], [&mut [f32]; 2]) -> Done<()>,
        sums: &mut Gradients<'_, Self>,
    ) -> Done<CandleTensor> {
        Ok(self.head_loss(hidden, head, of, offsets, loss, sums)?.into())
    }
}

/// Returns the ids of new tokens, sampled ones included.
fn ids(tokens: NewTokens<'_, Candle>) -> Vec<u32> {
    let Some(DrawnIds { drawn, rows, vocab }) = tokens.drawn else { return tokens.ids.to_vec() };
    let ids = tokens.ids.iter().zip(rows).map(|(&given, &row)| match row {
        FROM_HOST => given,
        row => drawn[row as usize].map_or(0, |sampled| sampled.id.min(vocab as u32 - 1)),
    });
    ids.collect()
}

/// Rotates heads by the positions of their tokens, or by the opposite angles.
fn rotate(
    x: &CandleTensor,
    heads: usize,
    rope: &CandleAngles,
    at: &CandlePlaced<'_>,
    back: bool,
) -> Done<CandleTensor> {
    let [cos, sin] = rope.of_positions(at.positions)?;
    let x = x.get()?.reshape((at.positions.len(), heads, rope.head_dim()))?;
    Ok(rotary::rotate(&x, [&cos, &sin], back)?.into())
}

/// Returns queries, keys and values `[N, width]`.
pub(super) fn projected([q, k, v]: [&CandleTensor; 3], heads: Heads) -> Done<[Tensor; 3]> {
    let (wide, narrow) = (heads.q * heads.dim, heads.kv * heads.dim);
    Ok([q.rows(wide)?, k.rows(narrow)?, v.rows(narrow)?])
}

/// Computes the gradients of attention by queries, keys, values and sinks.
pub(super) fn attend_back(
    qkv: [&CandleTensor; 3],
    [out, dout]: [&CandleTensor; 2],
    at: &CandlePlaced<'_>,
    (heads, sinks): (Heads, Option<&Tensor>),
) -> Done<[Tensor; 4]> {
    let ([q, k, v], wide) = (projected(qkv, heads)?, heads.q * heads.dim);
    let (out, dout) = (out.rows(wide)?, dout.rows(wide)?);
    Ok(attention::attend_back([&q, &k, &v], [&out, &dout], at.packing, (heads, sinks))?)
}

/// Computes the gradients of an activated gate times `up`.
pub(super) fn gated_back(
    of: Activation,
    [gate, up]: [&CandleTensor; 2],
    dact: &CandleTensor,
) -> Done<[CandleTensor; 2]> {
    let (gate, up, dact) = (gate.rows(1)?, up.rows(1)?, dact.rows(1)?);
    Ok(gates::gated_back(of, [&gate, &up], &dact)?.map(CandleTensor::from))
}

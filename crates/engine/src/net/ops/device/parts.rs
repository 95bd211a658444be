//! Operations of parts that only some families have, by the kernels of a machine.

use maverl_kernels::attention::Heads;
use maverl_kernels::cuda::{HeadNorm, RopeTables, TurnedHeads};

use super::{
    Device, DeviceKv, DeviceNumbers, DevicePlaced, Runner, machine_error, sum, with_gains,
    with_weight,
};
use crate::files::parts::{Experts, Gain, QueryScale};
use crate::net::experts::{BalanceTerm, LayerRoutes, SavedExperts};
use crate::net::gradients::Gradients;
use crate::net::linear::Linear;
use crate::net::norm::Norm;
use crate::net::ops::{Buffer, Done, HeadTurn, PartOps};
use crate::net::pool::Pool;
use crate::net::values::Param;

/// Heads after their norm and rotation, and with a norm its input.
type Turned<M> = (DeviceNumbers<M, u16>, Option<DeviceNumbers<M, u16>>);

impl<M: Runner> PartOps for Device<M> {
    type Placed<'a> = DevicePlaced<'a, M>;

    fn scale_stream(&self, x: &mut Self::Stream, factor: f32) -> Done<()> {
        self.kernels.scale_stream(x.write()?, factor).map_err(machine_error)
    }

    fn copy_stream(&self, x: &Self::Stream, _: &mut Pool<Self>) -> Done<Self::Act> {
        let mut y = self.take(x.len())?;
        self.kernels.round_to_bf16(x.read()?, y.write()?).map_err(machine_error)?;
        Ok(y)
    }

    fn add_to_stream(&self, mut onto: Self::Stream, dx: &Self::Act) -> Done<Self::Stream> {
        self.kernels.add_to_stream(onto.write()?, dx.read()?).map_err(machine_error)?;
        Ok(onto)
    }

    fn sum_onto(
        &self,
        onto: &Self::Stream,
        x: &Self::Act,
        _: &mut Pool<Self>,
    ) -> Done<Self::Stream> {
        let mut y = self.take(x.len())?;
        self.kernels.sum_onto(onto.read()?, x.read()?, y.write()?).map_err(machine_error)?;
        Ok(y)
    }

    fn experts(
        &self,
        h: (&Self::Act, Option<LayerRoutes<'_>>),
        of: &Experts<Linear<Self>>,
        _: &mut Pool<Self>,
    ) -> Done<(Self::Act, SavedExperts<Self>)> {
        self.mix_experts(h, of)
    }

    fn experts_back(
        &self,
        h: &Self::Act,
        of: &Experts<Linear<Self>>,
        saved: SavedExperts<Self>,
        terms: (&Self::Act, Option<BalanceTerm<'_>>),
        sums: &mut Gradients<'_, Self>,
        _: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        self.mix_experts_back(h, of, saved, terms, sums)
    }

    fn norm_onto(
        &self,
        onto: &Self::Stream,
        x: &Self::Act,
        norm: &Norm<Self>,
        _: &mut Pool<Self>,
    ) -> Done<Self::Stream> {
        let mut y = self.take(x.len())?;
        let (onto, x, to) = (onto.read()?, x.read()?, y.write()?);
        with_gains(norm, |of| self.kernels.norm_onto(onto, x, of, to).map_err(machine_error))?;
        Ok(y)
    }

    fn norm_onto_back(
        &self,
        x: &Self::Act,
        norm: &Norm<Self>,
        dy: &Self::Stream,
        sums: &mut Gradients<'_, Self>,
        _: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        let mut dx = self.take(x.len())?;
        let (x, dy, to, dw) = (x.read()?, dy.read()?, dx.write()?, sum(sums, &norm.weight)?);
        with_gains(norm, |of| {
            self.kernels.norm_onto_back(x, of, dy, to, dw).map_err(machine_error)
        })?;
        Ok(dx)
    }

    fn split_columns<const N: usize>(
        &self,
        x: &Self::Act,
        widths: [usize; N],
        _: &mut Pool<Self>,
    ) -> Done<[Self::Act; N]> {
        let (all, mut from) = (widths.iter().sum::<usize>(), 0);
        let mut parts = [(); N].map(|()| Self::Act::default());
        for (part, width) in parts.iter_mut().zip(widths) {
            *part = self.take(x.len() / all * width)?;
            let (given, to) = ((x.read()?, all, from), (part.write()?, width, 0));
            self.kernels.copy_columns(width, given, to).map_err(machine_error)?;
            from += width;
        }
        Ok(parts)
    }

    fn join_columns<const N: usize>(
        &self,
        parts: [&Self::Act; N],
        widths: [usize; N],
        _: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        let (all, mut from) = (widths.iter().sum::<usize>(), 0);
        let mut joined = self.take(parts.iter().map(|part| part.len()).sum())?;
        for (part, width) in parts.into_iter().zip(widths) {
            let (given, to) = ((part.read()?, width, 0), (joined.write()?, all, from));
            self.kernels.copy_columns(width, given, to).map_err(machine_error)?;
            from += width;
        }
        Ok(joined)
    }

    fn scale_queries(
        &self,
        q: &mut Self::Act,
        scale: QueryScale,
        at: &DevicePlaced<'_, M>,
    ) -> Done<()> {
        let by = [scale.beta, scale.original];
        self.kernels.scale_queries(q.write()?, &at.tokens().positions, by).map_err(machine_error)
    }

    fn attend_sinks(
        &self,
        [q, k, v]: [&Self::Act; 3],
        at: &DevicePlaced<'_, M>,
        (heads, sinks): (Heads, &Param<Self>),
        _: &mut Pool<Self>,
    ) -> Done<(Self::Act, Self::Lse)> {
        let (mut out, mut lse) = (self.take(q.len())?, self.take(q.len() / heads.dim)?);
        let qkv = [q.read()?, k.read()?, v.read()?];
        let ((layout, _), to, of_sums) = (at.rows()?, out.write()?, lse.write()?);
        with_weight(sinks, |sinks| {
            let heads = (heads, Some(sinks));
            self.kernels.attend_packed(qkv, layout, heads, to, of_sums).map_err(machine_error)
        })?;
        Ok((out, lse))
    }

    fn attend_sinks_back(
        &self,
        [q, k, v]: [&Self::Act; 3],
        [out, dout]: [&Self::Act; 2],
        (lse, at): (&Self::Lse, &DevicePlaced<'_, M>),
        (heads, sinks): (Heads, &Param<Self>),
        sums: &mut Gradients<'_, Self>,
        _: &mut Pool<Self>,
    ) -> Done<[Self::Act; 3]> {
        let [mut dq, mut dk, mut dv] =
            [self.take(q.len())?, self.take(k.len())?, self.take(v.len())?];
        let (qkv, out) = ([q.read()?, k.read()?, v.read()?], [out.read()?, dout.read()?]);
        let (to, (_, layout)) = ([dq.write()?, dk.write()?, dv.write()?], at.rows()?);
        let (of_sums, dsinks) = (lse.read()?, sum(sums, sinks)?);
        with_weight(sinks, |sinks| {
            let heads = (heads, Some((sinks, dsinks)));
            self.kernels.attend_back(qkv, out, (of_sums, layout), heads, to).map_err(machine_error)
        })?;
        Ok([dq, dk, dv])
    }

    fn attend_cached_sinks(
        &self,
        q: &Self::Act,
        (kv, layer): (&DeviceKv<M>, usize),
        at: &DevicePlaced<'_, M>,
        (heads, sinks): (Heads, &Param<Self>),
        _: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        let mut out = self.take(q.len())?;
        let (q, blocks, tables) = (q.read()?, kv.blocks(), at.cached_tables()?);
        let (blocks, to) = (blocks.read()?, out.write()?);
        with_weight(sinks, |sinks| {
            let heads = (heads, Some(sinks));
            self.kernels
                .attend_cached(q, blocks, tables, kv.shape, layer, heads, to)
                .map_err(machine_error)
        })?;
        Ok(out)
    }

    fn geglu(&self, gate: &Self::Act, up: &Self::Act, _: &mut Pool<Self>) -> Done<Self::Act> {
        let mut act = self.take(gate.len())?;
        self.kernels.geglu([gate.read()?, up.read()?], act.write()?).map_err(machine_error)?;
        Ok(act)
    }

    fn geglu_back(
        &self,
        [gate, up]: [&Self::Act; 2],
        dact: &Self::Act,
        act: Self::Act,
        _: &mut Pool<Self>,
    ) -> Done<[Self::Act; 2]> {
        let (mut dgate, mut dup) = (act, self.take(gate.len())?);
        let given = [gate.read()?, up.read()?, dact.read()?];
        self.kernels.geglu_back(given, [dgate.write()?, dup.write()?]).map_err(machine_error)?;
        Ok([dgate, dup])
    }
}

impl<M: Runner> Device<M> {
    /// Normalizes and rotates heads, as [`Ops::turn`](crate::net::ops::Ops::turn).
    pub(super) fn turn_by_kind(
        &self,
        mut x: DeviceNumbers<M, u16>,
        turn: &HeadTurn<'_, Self>,
        at: &DevicePlaced<'_, M>,
    ) -> Done<Turned<M>> {
        let HeadTurn { heads, norm, rope } = *turn;
        let positions = &at.tokens().positions;
        let dim = head_dim(x.len(), heads, at);
        if let Some(of_all) = norm.filter(|norm| norm.weight.dims()[0] != dim) {
            let mut y = self.take(x.len())?;
            let (given, to) = (x.read()?, y.write()?);
            with_gains(of_all, |of| self.kernels.norm_act(given, of, to).map_err(machine_error))?;
            let (y, _) = self.turn_by_kind(y, &HeadTurn { heads, norm: None, rope }, at)?;
            return Ok((y, Some(x)));
        }
        let Some(norm) = norm else {
            let to = x.write()?;
            let done = match rope {
                None => Ok(()),
                Some(rope) if rope.turns_whole_heads() => {
                    self.kernels.apply_rope(to, heads, positions, rope, None, None)
                }
                Some(_) => {
                    let of = TurnedHeads { heads, dim, norm: None, tables: rope };
                    self.kernels.turn_heads(to, of, positions, None)
                }
            };
            done.map_err(machine_error)?;
            return Ok((x, None));
        };
        let mut raw = self.take(x.len())?;
        let (to, copy) = (x.write()?, Some(raw.write()?));
        with_gains(norm, |of| {
            let done = match plain(norm, rope) {
                Some(rope) => {
                    let norm = Some(HeadNorm { w: of.w, eps: of.eps });
                    self.kernels.apply_rope(to, heads, positions, rope, norm, copy)
                }
                None => {
                    let of = TurnedHeads { heads, dim, norm: Some(of), tables: rope };
                    self.kernels.turn_heads(to, of, positions, copy)
                }
            };
            done.map_err(machine_error)
        })?;
        Ok((x, Some(raw)))
    }

    /// Computes the gradient of [`Device::turn_by_kind`] by its input.
    pub(super) fn turn_back_by_kind(
        &self,
        mut dx: DeviceNumbers<M, u16>,
        raw: Option<DeviceNumbers<M, u16>>,
        turn: &HeadTurn<'_, Self>,
        at: &DevicePlaced<'_, M>,
        sums: &mut Gradients<'_, Self>,
    ) -> Done<DeviceNumbers<M, u16>> {
        let HeadTurn { heads, norm, rope } = *turn;
        let positions = &at.tokens().positions;
        let dim = head_dim(dx.len(), heads, at);
        let (Some(norm), Some(raw)) = (norm, raw) else {
            let to = dx.write()?;
            let done = match rope {
                None => Ok(()),
                Some(rope) if rope.turns_whole_heads() => {
                    self.kernels.rope_back(to, heads, positions, rope, None, None)
                }
                Some(_) => {
                    let of = TurnedHeads { heads, dim, norm: None, tables: rope };
                    self.kernels.turn_heads_back(to, of, positions, None, None)
                }
            };
            done.map_err(machine_error)?;
            return Ok(dx);
        };
        if norm.weight.dims()[0] != dim {
            let turn = HeadTurn { heads, norm: None, rope };
            let dy = self.turn_back_by_kind(dx, None, &turn, at, sums)?;
            let mut dx = self.take(dy.len())?;
            let (x, given, to, dw) =
                (raw.read()?, dy.read()?, dx.write()?, sum(sums, &norm.weight)?);
            with_gains(norm, |of| {
                self.kernels.norm_act_back(x, of, given, to, dw).map_err(machine_error)
            })?;
            return Ok(dx);
        }
        let (to, raw, dw) = (dx.write()?, raw.read()?, sum(sums, &norm.weight)?);
        with_gains(norm, |of| {
            let done = match plain(norm, rope) {
                Some(rope) => {
                    let norm = Some((HeadNorm { w: of.w, eps: of.eps }, raw));
                    self.kernels.rope_back(to, heads, positions, rope, norm, dw)
                }
                None => {
                    let of = TurnedHeads { heads, dim, norm: Some(of), tables: rope };
                    self.kernels.turn_heads_back(to, of, positions, Some(raw), dw)
                }
            };
            done.map_err(machine_error)
        })?;
        Ok(dx)
    }
}

/// Returns the elements of a head of activations of a pass.
fn head_dim<M: Runner>(len: usize, heads: usize, at: &DevicePlaced<'_, M>) -> usize {
    len / (at.tokens().ids.token_count() * heads).max(1)
}

/// Returns the tables, if heads are rotated whole after a norm with its weights as gains.
fn plain<'a, M: Runner>(
    norm: &Norm<Device<M>>,
    rope: Option<&'a RopeTables<M>>,
) -> Option<&'a RopeTables<M>> {
    rope.filter(|rope| rope.turns_whole_heads() && norm.gain == Gain::Weight)
}

//! Operations of a device, by the kernels of its machine.

use std::ops::Range;

use maverl_kernels::attention::Heads;
use maverl_kernels::cuda::{HeadInput, HeadNorm, RopeTables, Slice};

use super::{
    DecodingPasses, Device, DeviceKv, DevicePlaced, DeviceTokens, Runner, Seen, empty,
    machine_error, misused_error, sum, with_weight,
};
use crate::files::ModelError;
use crate::files::hf_config::Frequencies;
use crate::net::gradients::Gradients;
use crate::net::linear::{Linear, OutputHead};
use crate::net::norm::Norm;
use crate::net::ops::{Buffer, Done, DrawnIds, HeadTurn, NewTokens, Ops, PartOps, Targets};
use crate::net::pool::{Pool, ThreadBuffers};
use crate::net::rows::Rows;
use crate::net::values::Param;

/// Largest number of logits that are held at once.
const LOGITS: usize = 1 << 24;

impl<M: Runner> PartOps for Device<M> {
    type Placed<'a> = DevicePlaced<'a, M>;
}

impl<M: Runner> Ops for Device<M> {
    fn rope(&self, frequencies: &Frequencies, positions: usize) -> Done<RopeTables<M>> {
        self.kernels.rope_tables(&frequencies.table(positions), positions).map_err(machine_error)
    }

    fn place<'a>(&self, rows: Rows<'a>) -> Done<DevicePlaced<'a, M>> {
        let forward = self.kernels.attention_layout(rows.packing).map_err(machine_error)?;
        let back = self.kernels.backward_layout(rows.packing).map_err(machine_error)?;
        let ids = self.kernels.embedding_layout(rows.ids).map_err(machine_error)?;
        let positions = self.kernels.upload_positions(rows.positions).map_err(machine_error)?;
        Ok(DevicePlaced::All(Box::new(DeviceTokens {
            ids,
            positions,
            seen: Seen::Rows(forward, back),
        })))
    }

    fn place_cached<'a>(&self, tokens: NewTokens<'a, Self>) -> Done<DevicePlaced<'a, M>> {
        let NewTokens { ids, positions, segments, drawn } = tokens;
        let tables = self.kernels.block_tables(segments).map_err(machine_error)?;
        let mut ids = self.kernels.embedding_layout(ids).map_err(machine_error)?;
        if let Some(DrawnIds { drawn, rows, vocab }) = drawn {
            self.kernels.replace_by_sampled(&mut ids, drawn, rows, vocab).map_err(machine_error)?;
        }
        let positions = self.kernels.upload_positions(positions).map_err(machine_error)?;
        Ok(DevicePlaced::All(Box::new(DeviceTokens { ids, positions, seen: Seen::Cached(tables) })))
    }

    fn decode(
        &self,
        passes: &DecodingPasses<M>,
        tokens: NewTokens<'_, Self>,
        kv: &mut DeviceKv<M>,
        run: impl FnOnce(&Self, &DevicePlaced<'_, M>, &DeviceKv<M>) -> Done<Self::Act>,
    ) -> Done<Option<Self::Act>> {
        let Some(pass) = self.recorded_pass(tokens.segments) else { return Ok(None) };
        let shape = kv.shape;
        let record = || self.record(pass, shape, run);
        passes.with_recording(pass, record, |of| self.replay(of, tokens, kv)).map(Some)
    }

    fn part<'p>(&self, all: &'p DevicePlaced<'_, M>, _: Range<usize>) -> DevicePlaced<'p, M> {
        DevicePlaced::Again(all.tokens())
    }

    fn parts<'l>(&self, _: usize, _: impl Iterator<Item = &'l Linear<Self>>) -> usize {
        1
    }

    fn join(&self, parts: &mut [ThreadBuffers<Self>], _: &mut Pool<Self>) -> Done<Self::Act> {
        parts.first_mut().map(|part| std::mem::take(&mut part.hidden)).ok_or_else(empty)
    }

    fn pack(&self, _: &Param<Self>) {}

    fn gather(
        &self,
        table: &Param<Self>,
        at: &DevicePlaced<'_, M>,
        _: &mut Pool<Self>,
    ) -> Done<Self::Stream> {
        let (ids, width) = (&at.tokens().ids, table.dims()[1]);
        let mut x = self.take(ids.token_count() * width)?;
        let to = x.write()?;
        with_weight(table, |table| {
            self.kernels.gather_rows(table, ids, width, to).map_err(machine_error)
        })?;
        Ok(x)
    }

    fn gather_back(
        &self,
        table: &Param<Self>,
        dx: &Self::Stream,
        at: &DevicePlaced<'_, M>,
        sums: &mut Gradients<'_, Self>,
    ) -> Done<()> {
        let Some((array, place)) = sums.embedding_place(table.slot()) else { return Ok(()) };
        let dtable = array.write()?.sub_slice(place);
        let (dx, width) = (dx.read()?, table.dims()[1]);
        self.kernels.scatter_add(dx, &at.tokens().ids, width, dtable).map_err(machine_error)
    }

    fn norm(
        &self,
        x: &Self::Stream,
        Norm { weight, eps, .. }: &Norm<Self>,
        _: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        let mut y = self.take(x.len())?;
        let (x, to) = (x.read()?, y.write()?);
        with_weight(weight, |w| self.kernels.rms_norm(x, w, *eps, to).map_err(machine_error))?;
        Ok(y)
    }

    fn norm_back(
        &self,
        x: &Self::Stream,
        Norm { weight, eps, .. }: &Norm<Self>,
        dy: &Self::Act,
        onto: Option<Self::Stream>,
        sums: &mut Gradients<'_, Self>,
        _: &mut Pool<Self>,
    ) -> Done<Self::Stream> {
        let add = onto.is_some();
        let mut dx = onto.map_or_else(|| self.take(x.len()), Ok)?;
        let (x, dy, to, dw) = (x.read()?, dy.read()?, dx.write()?, sum(sums, weight)?);
        with_weight(weight, |w| {
            self.kernels.rms_norm_back(x, w, *eps, dy, add, to, None, dw).map_err(machine_error)
        })?;
        Ok(dx)
    }

    fn turn(
        &self,
        mut x: Self::Act,
        turn: &HeadTurn<'_, Self>,
        at: &DevicePlaced<'_, M>,
        _: &mut Pool<Self>,
    ) -> Done<(Self::Act, Option<Self::Act>)> {
        let HeadTurn { heads, norm, rope } = *turn;
        let (positions, rope) = (&at.tokens().positions, rope.ok_or_else(without_rope)?);
        let Some(Norm { weight, eps, .. }) = norm else {
            let to = x.write()?;
            self.kernels
                .apply_rope(to, heads, positions, rope, None, None)
                .map_err(machine_error)?;
            return Ok((x, None));
        };
        let mut raw = self.take(x.len())?;
        let (to, copy) = (x.write()?, Some(raw.write()?));
        with_weight(weight, |w| {
            let norm = Some(HeadNorm { w, eps: *eps });
            self.kernels.apply_rope(to, heads, positions, rope, norm, copy).map_err(machine_error)
        })?;
        Ok((x, Some(raw)))
    }

    fn turn_back(
        &self,
        mut dx: Self::Act,
        raw: Option<Self::Act>,
        turn: &HeadTurn<'_, Self>,
        at: &DevicePlaced<'_, M>,
        sums: &mut Gradients<'_, Self>,
        _: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        let HeadTurn { heads, norm, rope } = *turn;
        let (positions, rope) = (&at.tokens().positions, rope.ok_or_else(without_rope)?);
        let to = dx.write()?;
        match (norm, &raw) {
            (Some(Norm { weight, eps, .. }), Some(raw)) => {
                let (raw, dw) = (raw.read()?, sum(sums, weight)?);
                with_weight(weight, |w| {
                    let norm = Some((HeadNorm { w, eps: *eps }, raw));
                    self.kernels
                        .rope_back(to, heads, positions, rope, norm, dw)
                        .map_err(machine_error)
                })?;
            }
            _ => self
                .kernels
                .rope_back(to, heads, positions, rope, None, None)
                .map_err(machine_error)?,
        }
        Ok(dx)
    }

    fn swiglu(&self, gate: &Self::Act, up: &Self::Act, _: &mut Pool<Self>) -> Done<Self::Act> {
        let mut act = self.take(gate.len())?;
        self.kernels.swiglu(gate.read()?, up.read()?, act.write()?).map_err(machine_error)?;
        Ok(act)
    }

    fn swiglu_back(
        &self,
        [gate, up]: [&Self::Act; 2],
        dact: &Self::Act,
        act: Self::Act,
        _: &mut Pool<Self>,
    ) -> Done<[Self::Act; 2]> {
        let (mut dgate, mut dup) = (act, self.take(gate.len())?);
        let given = [gate.read()?, up.read()?, dact.read()?];
        let to = [dgate.write()?, dup.write()?];
        self.kernels.swiglu_back(given, to, None).map_err(machine_error)?;
        Ok([dgate, dup])
    }

    fn attend(
        &self,
        [q, k, v]: [&Self::Act; 3],
        at: &DevicePlaced<'_, M>,
        heads: Heads,
        _: &mut Pool<Self>,
    ) -> Done<(Self::Act, Self::Lse)> {
        let (mut out, mut lse) = (self.take(q.len())?, self.take(q.len() / heads.dim)?);
        let qkv = [q.read()?, k.read()?, v.read()?];
        let (layout, _) = at.rows()?;
        self.kernels
            .attend_packed(qkv, layout, heads, out.write()?, lse.write()?)
            .map_err(machine_error)?;
        Ok((out, lse))
    }

    fn attend_back(
        &self,
        [q, k, v]: [&Self::Act; 3],
        [out, dout]: [&Self::Act; 2],
        lse: &Self::Lse,
        at: &DevicePlaced<'_, M>,
        heads: Heads,
        _: &mut Pool<Self>,
    ) -> Done<[Self::Act; 3]> {
        let [mut dq, mut dk, mut dv] =
            [self.take(q.len())?, self.take(k.len())?, self.take(v.len())?];
        let (qkv, out) = ([q.read()?, k.read()?, v.read()?], [out.read()?, dout.read()?]);
        let (to, (_, layout)) = ([dq.write()?, dk.write()?, dv.write()?], at.rows()?);
        self.kernels
            .attend_back(qkv, out, lse.read()?, layout, heads, to)
            .map_err(machine_error)?;
        Ok([dq, dk, dv])
    }

    #[allow(unsafe_code)]
    unsafe fn append(
        &self,
        kv: &DeviceKv<M>,
        layer: usize,
        [k, v]: [&Self::Act; 2],
        at: &DevicePlaced<'_, M>,
    ) -> Done<()> {
        let (new, shape, mut blocks) = ([k.read()?, v.read()?], kv.shape, kv.blocks());
        self.kernels
            .append_tokens(new, at.cached_tables()?, shape, layer, blocks.write()?)
            .map_err(machine_error)
    }

    fn attend_cached(
        &self,
        q: &Self::Act,
        (kv, layer): (&DeviceKv<M>, usize),
        at: &DevicePlaced<'_, M>,
        heads: Heads,
        _: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        let mut out = self.take(q.len())?;
        let (q, blocks, tables) = (q.read()?, kv.blocks(), at.cached_tables()?);
        let (blocks, to) = (blocks.read()?, out.write()?);
        self.kernels
            .attend_cached(q, blocks, tables, kv.shape, layer, heads, to)
            .map_err(machine_error)?;
        Ok(out)
    }

    fn logprobs(
        &self,
        hidden: &Self::Act,
        head: &OutputHead<Self>,
        of: Targets<'_>,
    ) -> Done<(Vec<f32>, Vec<f32>)> {
        let head = head.map.weight();
        let (h, rows_at_once) = (hidden.read()?, rows_at_once(head));
        with_weight(head, |w| {
            let input = input(h, w, of, rows_at_once);
            let [logp, entropy] =
                self.kernels.head_log_probabilities(&input).map_err(machine_error)?;
            Ok((logp, entropy))
        })
    }

    fn loss(
        &self,
        hidden: &Self::Act,
        head: &OutputHead<Self>,
        of: Targets<'_>,
        offsets: &[usize],
        loss: impl FnMut(Range<usize>, [&[f32]; 2], [&mut [f32]; 2]) -> Done<()>,
        sums: &mut Gradients<'_, Self>,
    ) -> Done<Self::Act> {
        let head = head.map.weight();
        let mut dhidden = self.take(hidden.len())?;
        let (h, to, dw) = (hidden.read()?, dhidden.write()?, sum(sums, head)?);
        let rows_at_once = rows_at_once(head);
        with_weight(head, |w| {
            let input = input(h, w, of, rows_at_once);
            self.kernels.head_loss(&input, offsets, loss, to, dw).map_err(machine_error)?
        })?;
        Ok(dhidden)
    }
}

fn without_rope() -> ModelError {
    misused_error("a layer without rotary positions")
}

/// Returns the number of rows of which logits are held at once.
fn rows_at_once<M: Runner>(head: &Param<Device<M>>) -> usize {
    (LOGITS / head.dims()[0]).max(1)
}

fn input<'a>(
    h: Slice<'a, u16>,
    w: Slice<'a, u16>,
    of: Targets<'a>,
    rows_at_once: usize,
) -> HeadInput<'a> {
    let Targets { ids: targets, inv_temperature: inverse_temperatures } = of;
    HeadInput { h, w, targets, inverse_temperatures, rows_at_once }
}

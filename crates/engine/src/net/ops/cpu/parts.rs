//! Operations of parts that only some families have, on the CPU.

use maverl_kernels::attention::{
    Heads, attention_cached_sinks, attention_sinks, attention_sinks_bwd,
};
use maverl_kernels::norm::{rms_norm, rms_norm_bwd};
use maverl_kernels::{bias, elementwise, mlp};

use super::{Cpu, Done, Placed, experts};
use crate::files::parts::{Experts, QueryScale};
use crate::net::experts::{BalanceTerm, LayerRoutes, SavedExperts};
use crate::net::gradients::Gradients;
use crate::net::kv::KvStore;
use crate::net::linear::Linear;
use crate::net::norm::Norm;
use crate::net::ops::PartOps;
use crate::net::pool::Pool;
use crate::net::values::Param;

impl PartOps for Cpu {
    type Placed<'a> = Placed<'a>;

    fn scale_stream(&self, x: &mut Vec<f32>, factor: f32) -> Done<()> {
        elementwise::scale_numbers(x, factor);
        Ok(())
    }

    fn copy_stream(&self, x: &Vec<f32>, pool: &mut Pool) -> Done<Vec<f32>> {
        Ok(pool.copy(x))
    }

    fn add_to_stream(&self, mut onto: Vec<f32>, dx: &Vec<f32>) -> Done<Vec<f32>> {
        elementwise::add_numbers(&mut onto, dx);
        Ok(onto)
    }

    fn sum_onto(&self, onto: &Vec<f32>, x: &Vec<f32>, pool: &mut Pool) -> Done<Vec<f32>> {
        let mut y = pool.copy(onto);
        elementwise::add_numbers(&mut y, x);
        Ok(y)
    }

    fn experts(
        &self,
        (h, routes): (&Vec<f32>, Option<LayerRoutes<'_>>),
        of: &Experts<Linear>,
        pool: &mut Pool,
    ) -> Done<(Vec<f32>, SavedExperts)> {
        Ok(experts::forward((h, routes), of, self.precision, pool))
    }

    fn experts_back(
        &self,
        h: &Vec<f32>,
        of: &Experts<Linear>,
        saved: SavedExperts,
        (dmixed, balance): (&Vec<f32>, Option<BalanceTerm<'_>>),
        sums: &mut Gradients<'_>,
        pool: &mut Pool,
    ) -> Done<Vec<f32>> {
        experts::backward(h, of, saved, (dmixed, balance), self.precision, sums, pool)
    }

    fn norm_onto(
        &self,
        onto: &Vec<f32>,
        x: &Vec<f32>,
        norm: &Norm,
        pool: &mut Pool,
    ) -> Done<Vec<f32>> {
        let mut y = pool.take(x.len());
        norm.with_gains(|gains| rms_norm(x, gains, norm.eps, &mut y));
        elementwise::add_numbers(&mut y, onto);
        Ok(y)
    }

    fn norm_onto_back(
        &self,
        x: &Vec<f32>,
        norm: &Norm,
        dy: &Vec<f32>,
        sums: &mut Gradients<'_>,
        pool: &mut Pool,
    ) -> Done<Vec<f32>> {
        let (mut dx, dw) = (pool.take(x.len()), sums.of(norm.weight.slot()));
        norm.with_gains(|gains| rms_norm_bwd(x, gains, norm.eps, dy, &mut dx, dw));
        Ok(dx)
    }

    fn split_columns<const N: usize>(
        &self,
        x: &Vec<f32>,
        widths: [usize; N],
        pool: &mut Pool,
    ) -> Done<[Vec<f32>; N]> {
        let all: usize = widths.iter().sum();
        let mut start = 0;
        Ok(widths.map(|width| {
            let mut part = pool.take(x.len() / all * width);
            elementwise::copy_columns(x, all, start..start + width, &mut part);
            start += width;
            part
        }))
    }

    fn join_columns<const N: usize>(
        &self,
        parts: [&Vec<f32>; N],
        widths: [usize; N],
        pool: &mut Pool,
    ) -> Done<Vec<f32>> {
        let all: usize = widths.iter().sum();
        let mut joined = pool.take(parts.iter().map(|part| part.len()).sum());
        let mut start = 0;
        for (part, width) in parts.into_iter().zip(widths) {
            elementwise::write_columns(part, &mut joined, all, start..start + width);
            start += width;
        }
        Ok(joined)
    }

    fn scale_queries(&self, q: &mut Vec<f32>, scale: QueryScale, at: &Placed<'_>) -> Done<()> {
        let width = q.len() / at.positions.len().max(1);
        for (q, &position) in q.chunks_exact_mut(width.max(1)).zip(at.positions) {
            let whole = (position as f32 / scale.original).floor();
            let factor = 1.0 + scale.beta * libm::logf(1.0 + whole);
            q.iter_mut().for_each(|q| *q *= factor);
        }
        Ok(())
    }

    fn attend_sinks(
        &self,
        [q, k, v]: [&Vec<f32>; 3],
        at: &Placed<'_>,
        (heads, sinks): (Heads, &Param),
        pool: &mut Pool,
    ) -> Done<(Vec<f32>, ())> {
        let mut out = pool.take(q.len());
        attention_sinks([q, k, v], &sinks.values(), at.packing, heads, &mut out);
        Ok((out, ()))
    }

    fn attend_sinks_back(
        &self,
        [q, k, v]: [&Vec<f32>; 3],
        [out, dout]: [&Vec<f32>; 2],
        ((), at): (&(), &Placed<'_>),
        (heads, sinks): (Heads, &Param),
        sums: &mut Gradients<'_>,
        pool: &mut Pool,
    ) -> Done<[Vec<f32>; 3]> {
        let [mut dq, mut dk, mut dv] = [q, k, v].map(|like| pool.take(like.len()));
        let mut dsinks = pool.take(q.len() / heads.dim);
        let grads = [&mut dq[..], &mut dk, &mut dv, &mut dsinks];
        let values = sinks.values();
        attention_sinks_bwd([q, k, v], [out, dout], &values, at.packing, heads, grads);
        if let Some(sum) = sums.of(sinks.slot()) {
            bias::add_bwd(&dsinks, sum);
        }
        pool.give([dsinks]);
        Ok([dq, dk, dv])
    }

    fn attend_cached_sinks(
        &self,
        q: &Vec<f32>,
        (kv, layer): (&KvStore, usize),
        at: &Placed<'_>,
        (heads, sinks): (Heads, &Param),
        pool: &mut Pool,
    ) -> Done<Vec<f32>> {
        let (mut out, sinks) = (pool.take(q.len()), sinks.values());
        attention_cached_sinks(q, kv.layer(layer), &at.segments, heads, &sinks, &mut out);
        Ok(out)
    }

    fn geglu(&self, gate: &Vec<f32>, up: &Vec<f32>, pool: &mut Pool) -> Done<Vec<f32>> {
        let mut act = pool.take(gate.len());
        mlp::geglu(gate, up, &mut act);
        Ok(act)
    }

    fn geglu_back(
        &self,
        [gate, up]: [&Vec<f32>; 2],
        dact: &Vec<f32>,
        act: Vec<f32>,
        pool: &mut Pool,
    ) -> Done<[Vec<f32>; 2]> {
        let (mut dgate, mut dup) = (act, pool.take(gate.len()));
        mlp::geglu_bwd(gate, up, dact, &mut dgate, &mut dup);
        Ok([dgate, dup])
    }
}

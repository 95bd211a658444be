//! Operations of parts that only some families have.

use candle_core::Tensor;
use maverl_kernels::attention::Heads;

use super::operations::{attend_back, gated_back, projected};
use super::{
    Candle, CandleKv, CandlePlaced, CandleTensor, Done, add_gradient, attention, cached, gates,
    weight,
};
use crate::files::parts::{Activation, Experts, QueryScale};
use crate::net::experts::{BalanceTerm, LayerRoutes, SavedExperts};
use crate::net::gradients::Gradients;
use crate::net::linear::Linear;
use crate::net::norm::Norm;
use crate::net::ops::PartOps;
use crate::net::pool::Pool;
use crate::net::values::Param;

impl PartOps for Candle {
    type Placed<'a> = CandlePlaced<'a>;

    fn scale_stream(&self, x: &mut CandleTensor, factor: f32) -> Done<()> {
        *x = (x.get()? * f64::from(factor))?.into();
        Ok(())
    }

    fn copy_stream(&self, x: &CandleTensor, _: &mut Pool<Self>) -> Done<CandleTensor> {
        // Numbers are never written in place.
        Ok(x.clone())
    }

    fn add_to_stream(&self, onto: CandleTensor, dx: &CandleTensor) -> Done<CandleTensor> {
        Ok((onto.rows(1)? + dx.rows(1)?)?.into())
    }

    fn sum_onto(
        &self,
        onto: &CandleTensor,
        x: &CandleTensor,
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        Ok((onto.rows(1)? + x.rows(1)?)?.into())
    }

    fn experts(
        &self,
        (h, routes): (&CandleTensor, Option<LayerRoutes<'_>>),
        of: &Experts<Linear<Self>>,
        _: &mut Pool<Self>,
    ) -> Done<(CandleTensor, SavedExperts<Self>)> {
        let (mixed, saved) = self.mix_experts(&h.rows(of.scores.dims().1)?, routes, of)?;
        Ok((mixed.into(), saved))
    }

    fn experts_back(
        &self,
        h: &CandleTensor,
        of: &Experts<Linear<Self>>,
        saved: SavedExperts<Self>,
        (dmixed, balance): (&CandleTensor, Option<BalanceTerm<'_>>),
        sums: &mut Gradients<'_, Self>,
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        let width = of.scores.dims().1;
        let (h, dmixed) = (h.rows(width)?, dmixed.rows(width)?);
        Ok(self.mix_experts_back(&h, of, saved, (&dmixed, balance), sums)?.into())
    }

    fn norm_onto(
        &self,
        onto: &CandleTensor,
        x: &CandleTensor,
        norm: &Norm<Self>,
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        let width = norm.width();
        Ok((norm.forward(&x.rows(width)?)? + onto.rows(width)?)?.into())
    }

    fn norm_onto_back(
        &self,
        x: &CandleTensor,
        norm: &Norm<Self>,
        dy: &CandleTensor,
        sums: &mut Gradients<'_, Self>,
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        let width = norm.width();
        Ok(norm.backward(&x.rows(width)?, &dy.rows(width)?, sums)?.into())
    }

    fn split_columns<const N: usize>(
        &self,
        x: &CandleTensor,
        widths: [usize; N],
        _: &mut Pool<Self>,
    ) -> Done<[CandleTensor; N]> {
        let x = x.rows(widths.iter().sum())?;
        let (mut start, mut parts) = (0, [(); N].map(|()| CandleTensor::default()));
        for (part, width) in parts.iter_mut().zip(widths) {
            *part = x.narrow(1, start, width)?.contiguous()?.into();
            start += width;
        }
        Ok(parts)
    }

    fn join_columns<const N: usize>(
        &self,
        parts: [&CandleTensor; N],
        widths: [usize; N],
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        let parts = parts.into_iter().zip(widths).map(|(part, width)| part.rows(width));
        Ok(Tensor::cat(&parts.collect::<Done<Vec<_>>>()?, 1)?.into())
    }

    fn scale_queries(
        &self,
        q: &mut CandleTensor,
        scale: QueryScale,
        at: &CandlePlaced<'_>,
    ) -> Done<()> {
        let n = at.positions.len();
        let factors = at.positions.iter().map(|&position| {
            let whole = (position as f32 / scale.original).floor();
            1.0 + scale.beta * libm::logf(1.0 + whole)
        });
        let factors = self.upload(factors.collect::<Vec<f32>>(), (n, 1))?;
        *q = q.get()?.reshape((n, ()))?.broadcast_mul(&factors)?.into();
        Ok(())
    }

    fn attend_sinks(
        &self,
        qkv: [&CandleTensor; 3],
        at: &CandlePlaced<'_>,
        (heads, sinks): (Heads, &Param<Self>),
        _: &mut Pool<Self>,
    ) -> Done<(CandleTensor, ())> {
        let ([q, k, v], sinks) = (projected(qkv, heads)?, weight(sinks)?);
        let out = attention::attend([&q, &k, &v], at.packing, (heads, Some(&sinks)))?;
        Ok((out.into(), ()))
    }

    fn attend_sinks_back(
        &self,
        qkv: [&CandleTensor; 3],
        out: [&CandleTensor; 2],
        ((), at): (&(), &CandlePlaced<'_>),
        (heads, sinks): (Heads, &Param<Self>),
        sums: &mut Gradients<'_, Self>,
        _: &mut Pool<Self>,
    ) -> Done<[CandleTensor; 3]> {
        let of = weight(sinks)?;
        let [dq, dk, dv, dsinks] = attend_back(qkv, out, at, (heads, Some(&of)))?;
        add_gradient(sums, sinks, || Ok(dsinks))?;
        Ok([dq, dk, dv].map(CandleTensor::from))
    }

    fn attend_cached_sinks(
        &self,
        q: &CandleTensor,
        (kv, layer): (&CandleKv, usize),
        at: &CandlePlaced<'_>,
        (heads, sinks): (Heads, &Param<Self>),
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        let (q, sinks) = (q.rows(heads.q * heads.dim)?, weight(sinks)?);
        Ok(cached::attend(&q, kv.layer(layer)?, at.segments, (heads, Some(&sinks)))?.into())
    }

    fn geglu(
        &self,
        gate: &CandleTensor,
        up: &CandleTensor,
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        Ok(gates::gated(Activation::Gelu, &gate.rows(1)?, &up.rows(1)?)?.into())
    }

    fn geglu_back(
        &self,
        inputs: [&CandleTensor; 2],
        dact: &CandleTensor,
        _: CandleTensor,
        _: &mut Pool<Self>,
    ) -> Done<[CandleTensor; 2]> {
        gated_back(Activation::Gelu, inputs, dact)
    }
}

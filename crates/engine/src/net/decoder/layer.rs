//! A layer of a decoder on its device, and what mixers and MLP have in common: norms before and after them, and maps of one
//! input. Shapes: `N` tokens, `D` width of the residual stream.

use std::array;

use crate::files::ModelError;
use crate::files::parts::{Layer, Maps};
use crate::net::experts::LayerRoutes;
use crate::net::gradients::Gradients;
use crate::net::linear::Linear;
use crate::net::norm::Norm;
use crate::net::ops::Ops;
use crate::net::pool::Pool;
use crate::net::values::Param;

/// Layer with its weights on a device.
pub(super) type DecoderLayer<O> = Layer<Linear<O>, Norm<O>, Param<O>>;

/// Layer, with what its passes read besides.
pub(super) struct LayerPass<'a, O: Ops> {
    /// Device.
    pub(super) ops: &'a O,
    /// Angles of rotary positions, if they have an effect.
    pub(super) rope: Option<&'a O::Rope>,
    /// Sinks of attention, if there are any, `[heads]`.
    pub(super) sinks: Option<&'a Param<O>>,
    /// Experts that the layer takes in place of those of its router, if there are any.
    pub(super) routes: Option<LayerRoutes<'a>>,
    /// Weights.
    pub(super) layer: &'a DecoderLayer<O>,
}

impl<O: Ops> LayerPass<'_, O> {
    /// Computes the input `[N, D]` of mixer or MLP from the residual stream.
    pub(super) fn norm_before(
        &self,
        x: &O::Stream,
        norm: Option<&Norm<O>>,
        pool: &mut Pool<O>,
    ) -> Result<O::Act, ModelError> {
        match norm {
            Some(norm) => self.ops.norm(x, norm, pool),
            None => self.ops.copy_stream(x, pool),
        }
    }

    /// Computes the gradient `[N, D]` of the residual stream from that of [`LayerPass::norm_before`]'s result, and `onto`, the
    /// gradient that reached the stream otherwise.
    pub(super) fn norm_before_backward(
        &self,
        x: &O::Stream,
        norm: Option<&Norm<O>>,
        dh: &O::Act,
        onto: O::Stream,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        match norm {
            Some(norm) => self.ops.norm_back(x, norm, dh, Some(onto), gradients, pool),
            None => self.ops.add_to_stream(onto, dh),
        }
    }

    /// Adds the last map of mixer or MLP, with its norm, to the residual stream `[N, D]`. With a norm, also returns its
    /// input.
    pub(super) fn add_result(
        &self,
        x: &O::Stream,
        inner: &O::Act,
        map: &Linear<O>,
        norm: Option<&Norm<O>>,
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, Option<O::Act>), ModelError> {
        let Some(norm) = norm else {
            return Ok((self.ops.linear_onto(x, inner, map, pool)?, None));
        };
        let mapped = self.ops.linear(inner, map, pool)?;
        Ok((self.ops.norm_onto(x, &mapped, norm, pool)?, Some(mapped)))
    }

    /// Computes the gradient of [`LayerPass::add_result`] by `inner`, from that of its result and the norm's input.
    pub(super) fn add_result_backward(
        &self,
        inner: &O::Act,
        mapped: Option<O::Act>,
        (map, norm): (&Linear<O>, Option<&Norm<O>>),
        dy: &O::Stream,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Act, ModelError> {
        let (Some(mapped), Some(norm)) = (mapped, norm) else {
            return self.ops.linear_onto_back(inner, map, dy, gradients, pool);
        };
        let dmapped = self.ops.norm_onto_back(&mapped, norm, dy, gradients, pool)?;
        let dinner = self.ops.linear_back(inner, &[(map, &dmapped)], gradients, pool)?;
        pool.give([mapped, dmapped]);
        Ok(dinner)
    }

    /// Computes maps of one input.
    pub(super) fn map_input<const N: usize>(
        &self,
        h: &O::Act,
        maps: &Maps<Linear<O>, N>,
        pool: &mut Pool<O>,
    ) -> Result<[O::Act; N], ModelError> {
        match maps {
            Maps::Split(maps) => self.ops.linears(h, maps.each_ref(), pool),
            Maps::Fused(map, widths) => {
                let all = self.ops.linear(h, map, pool)?;
                let parts = self.ops.split_columns(&all, *widths, pool)?;
                pool.give([all]);
                Ok(parts)
            }
        }
    }

    /// Computes the gradient of the input of [`LayerPass::map_input`] from those of its results.
    pub(super) fn map_input_backward<const N: usize>(
        &self,
        h: &O::Act,
        maps: &Maps<Linear<O>, N>,
        dparts: [&O::Act; N],
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Act, ModelError> {
        match maps {
            Maps::Split(maps) => {
                let pairs: [_; N] = array::from_fn(|index| (&maps[index], dparts[index]));
                self.ops.linear_back(h, &pairs, gradients, pool)
            }
            Maps::Fused(map, widths) => {
                let dall = self.ops.join_columns(dparts, *widths, pool)?;
                let dh = self.ops.linear_back(h, &[(map, &dall)], gradients, pool)?;
                pool.give([dall]);
                Ok(dh)
            }
        }
    }
}

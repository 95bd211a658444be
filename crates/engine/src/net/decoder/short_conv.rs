//! Short convolution of a layer with its norms and its residual sum, forward and backward. Shapes: `N` tokens, `D` width of
//! the residual stream.

use crate::files::ModelError;
use crate::files::parts::{Layer, LinearShape, ShortConv, TensorShape};
use crate::net::gradients::Gradients;
use crate::net::linear::Linear;
use crate::net::ops::Ops;
use crate::net::pool::{ConvProjected, Pool};
use crate::net::values::Param;

use super::layer::LayerPass;

/// Results of a layer's short convolution that its backward pass needs.
#[derive(Debug)]
pub(crate) struct SavedConv<O: Ops> {
    /// Input of the layer, `[N, D]`.
    x: O::Stream,
    projected: ConvProjected<O>,
    /// Input of the norm after the mixer, if there is one, `[N, D]`.
    mapped: Option<O::Act>,
}

impl<O: Ops> SavedConv<O> {
    /// Returns all buffers but the input to the pool.
    pub(super) fn keep_input(self, pool: &mut Pool<O>) -> O::Stream {
        self.projected.give(pool);
        pool.give(self.mapped);
        self.x
    }
}

impl<O: Ops> ConvProjected<O> {
    fn give(self, pool: &mut Pool<O>) {
        let Self { b, c, u, out } = self;
        pool.give([b, c, u, out]);
    }
}

impl ShortConv<LinearShape, TensorShape> {
    /// Returns the numbers of a token that are kept for the backward pass, beside the layer's input.
    pub(super) fn saved_numbers(&self) -> usize {
        4 * self.out.input
    }
}

impl<O: Ops> LayerPass<'_, O> {
    /// Computes the inputs of the short convolution from the layer's input `x [N, D]`.
    pub(super) fn project_conv(
        &self,
        net: &ShortConv<Linear<O>, Param<O>>,
        x: &O::Stream,
        pool: &mut Pool<O>,
    ) -> Result<ConvProjected<O>, ModelError> {
        // 1. Norm: (N, D) -> (N, D)
        let h = self.norm_before(x, self.layer.before_mixer.as_ref(), pool)?;
        // 2. Map: (N, D) -> (N, D), (N, D), (N, D)
        let [b, c, u] = self.map_input(&h, &net.inputs, pool)?;
        pool.give([h]);
        Ok(ConvProjected { b, c, u, out: O::Act::default() })
    }

    /// Computes the residual stream `[N, D]` after the short convolution of the layer, of packed rows.
    pub(super) fn run_conv(
        &self,
        net: &ShortConv<Linear<O>, Param<O>>,
        x: O::Stream,
        at: &O::Placed<'_>,
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, SavedConv<O>), ModelError> {
        let mut projected = self.project_conv(net, &x, pool)?;
        // 3. Gate and convolution: (N, D), (N, D) -> (N, D)
        let input = self.ops.multiply(&projected.b, &projected.u, pool)?;
        projected.out = self.ops.convolve(&input, &net.conv, at, pool)?;
        pool.give([input]);
        let (m, mapped) = self.add_conv(net, &x, &projected, pool)?;
        Ok((m, SavedConv { x, projected, mapped }))
    }

    /// Adds the result of the convolution to the residual stream.
    fn add_conv(
        &self,
        net: &ShortConv<Linear<O>, Param<O>>,
        x: &O::Stream,
        ConvProjected { c, out, .. }: &ConvProjected<O>,
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, Option<O::Act>), ModelError> {
        // 4. Gate: (N, D), (N, D) -> (N, D)
        let gated = self.ops.multiply(c, out, pool)?;
        // 5. Map, norm and residual sum: (N, D) -> (N, D)
        let result = self.add_result(x, &gated, &net.out, self.layer.after_mixer.as_ref(), pool)?;
        pool.give([gated]);
        Ok(result)
    }

    /// Advances the states of the layer by new tokens.
    pub(super) fn advance_conv(
        &self,
        net: &ShortConv<Linear<O>, Param<O>>,
        given: &mut ConvProjected<O>,
        at: &O::Placed<'_>,
        cache: (&O::Kv, usize),
        pool: &mut Pool<O>,
    ) -> Result<(), ModelError> {
        // 3.
        let input = self.ops.multiply(&given.b, &given.u, pool)?;
        given.out = self.ops.convolve_cached(&input, &net.conv, cache, at, pool)?;
        pool.give([input]);
        Ok(())
    }

    /// Adds the result for new tokens to the residual stream. Also returns the layer's input.
    pub(super) fn add_cached_conv(
        &self,
        net: &ShortConv<Linear<O>, Param<O>>,
        x: O::Stream,
        given: ConvProjected<O>,
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, O::Stream), ModelError> {
        let (m, mapped) = self.add_conv(net, &x, &given, pool)?;
        given.give(pool);
        pool.give(mapped);
        Ok((m, x))
    }

    /// Adds the gradients of the short convolution of the layer. Returns the gradient `[N, D]` of its input, from that of its
    /// result.
    pub(super) fn conv_backward(
        &self,
        net: &ShortConv<Linear<O>, Param<O>>,
        SavedConv { x, projected, mapped }: SavedConv<O>,
        at: &O::Placed<'_>,
        dm: O::Stream,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        let ops = self.ops;
        let Layer { before_mixer, after_mixer, .. } = self.layer;
        let ConvProjected { b, c, u, out } = &projected;
        // 5. (N, D) -> (N, D)
        let gated = ops.multiply(c, out, pool)?;
        let last = (&net.out, after_mixer.as_ref());
        let dgated = self.add_result_backward(&gated, mapped, last, &dm, gradients, pool)?;
        // 4. (N, D) -> (N, D), (N, D)
        let [dc, dout] = [ops.multiply(&dgated, out, pool)?, ops.multiply(&dgated, c, pool)?];
        // 3. (N, D) -> (N, D), (N, D)
        let input = ops.multiply(b, u, pool)?;
        let dinput = ops.convolve_back(&input, &net.conv, &dout, at, gradients, pool)?;
        let [db, du] = [ops.multiply(&dinput, u, pool)?, ops.multiply(&dinput, b, pool)?];
        pool.give([gated, dgated, dout, input, dinput]);
        // 2. (N, D), (N, D), (N, D) -> (N, D)
        let before = before_mixer.as_ref();
        let h = self.norm_before(&x, before, pool)?;
        let dh = self.map_input_backward(&h, &net.inputs, [&db, &dc, &du], gradients, pool)?;
        // 1. (N, D) -> (N, D)
        let dx = self.norm_before_backward(&x, before, &dh, dm, gradients, pool)?;
        projected.give(pool);
        pool.give([db, dc, du, h, dh]);
        pool.give_streams([x]);
        Ok(dx)
    }
}

//! Gated DeltaNet of a layer with its norms and its residual sum, forward and backward. Shapes: `N` tokens, `D` width of the
//! residual stream, `C` width of queries, keys and values, `V` heads of values of width `d`.

use crate::files::ModelError;
use crate::files::parts::{DeltaNet, Layer, LinearShape, NormShape, TensorShape};
use crate::net::gradients::Gradients;
use crate::net::linear::Linear;
use crate::net::norm::Norm;
use crate::net::ops::{DeltaInputs, DeltaWeights, HeadTurn, Memory, Ops};
use crate::net::pool::{DeltaProjected, Pool};
use crate::net::values::Param;

use super::layer::LayerPass;

/// Residual stream after a Gated DeltaNet, the result of its rule, and the input of the norm after it, if there is one.
type AddedDelta<O> = (<O as Memory>::Stream, <O as Memory>::Act, Option<<O as Memory>::Act>);

/// Results of a layer's Gated DeltaNet that its backward pass needs.
#[derive(Debug)]
pub(crate) struct SavedDelta<O: Ops> {
    /// Input of the layer, `[N, D]`.
    x: O::Stream,
    projected: DeltaProjected<O>,
    /// Result of the convolution, `[N, C]`.
    convolved: O::Act,
    /// States between spans of tokens.
    states: O::Act,
    /// Input of the norm after the mixer, if there is one, `[N, D]`.
    mapped: Option<O::Act>,
}

impl<O: Ops> SavedDelta<O> {
    /// Returns all buffers but the input to the pool.
    pub(super) fn keep_input(self, pool: &mut Pool<O>) -> O::Stream {
        let Self { x, projected, convolved, states, mapped } = self;
        projected.give(pool);
        pool.give([convolved, states].into_iter().chain(mapped));
        x
    }
}

impl<O: Ops> DeltaProjected<O> {
    fn give(self, pool: &mut Pool<O>) {
        let Self { mixed, z, b, a, out } = self;
        pool.give([mixed, z, b, a, out]);
    }
}

impl DeltaNet<LinearShape, NormShape, TensorShape> {
    /// Returns the numbers of a token that are kept for the backward pass, beside the layer's input. States are kept after
    /// every [`SPAN_TOKENS`](maverl_kernels::recurrent::SPAN_TOKENS) tokens.
    pub(super) fn saved_numbers(&self) -> usize {
        let heads = self.heads;
        let states = heads.state_len() / maverl_kernels::recurrent::SPAN_TOKENS;
        2 * heads.mixed_width() + 2 * heads.values_width() + 2 * heads.values + states
    }
}

impl<O: Ops> DeltaNet<Linear<O>, Norm<O>, Param<O>> {
    /// Returns the norm of the heads of the result.
    fn head_norm(&self) -> HeadTurn<'_, O> {
        HeadTurn { heads: self.heads.values, norm: Some(&self.norm), rope: None }
    }
}

impl<O: Ops> LayerPass<'_, O> {
    /// Computes the inputs of the Gated DeltaNet from the layer's input `x [N, D]`.
    pub(super) fn project_delta(
        &self,
        net: &DeltaWeights<O>,
        x: &O::Stream,
        pool: &mut Pool<O>,
    ) -> Result<DeltaProjected<O>, ModelError> {
        // 1. Norm: (N, D) -> (N, D)
        let h = self.norm_before(x, self.layer.before_mixer.as_ref(), pool)?;
        // 2. Maps: (N, D) -> (N, C), (N, V d), (N, V), (N, V)
        let [mixed, z, b, a] = self.map_input(&h, &net.inputs, pool)?;
        pool.give([h]);
        Ok(DeltaProjected { mixed, z, b, a, out: O::Act::default() })
    }

    /// Computes the residual stream `[N, D]` after the Gated DeltaNet of the layer, of packed rows.
    pub(super) fn run_delta(
        &self,
        net: &DeltaWeights<O>,
        x: O::Stream,
        at: &O::Placed<'_>,
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, SavedDelta<O>), ModelError> {
        let mut projected = self.project_delta(net, &x, pool)?;
        // 3. Convolution and gates: (N, C), (N, V), (N, V) -> (N, C), (N, V), (N, V)
        let convolved = self.ops.convolve(&projected.mixed, &net.conv, at, pool)?;
        let (inputs, raw) = self.delta_inputs(net, &convolved, &projected, pool)?;
        // 4. Rule: (N, C), (N, V), (N, V) -> (N, V d)
        let [out, states] = self.ops.delta_rule(&inputs, net.heads, at, pool)?;
        inputs.give(pool);
        pool.give([raw]);
        let (m, out, mapped) = self.add_delta(net, &x, (out, &projected.z), at, pool)?;
        projected.out = out;
        Ok((m, SavedDelta { x, projected, convolved, states, mapped }))
    }

    /// Computes the inputs of the rule, and what of them is not normalized yet.
    fn delta_inputs(
        &self,
        net: &DeltaWeights<O>,
        convolved: &O::Act,
        DeltaProjected { a, b, .. }: &DeltaProjected<O>,
        pool: &mut Pool<O>,
    ) -> Result<(DeltaInputs<O>, O::Act), ModelError> {
        let raw = self.ops.silu(convolved, pool)?;
        Ok((self.ops.delta_inputs(&raw, [a, b], net, pool)?, raw))
    }

    /// Adds the result of the rule and its gate to the residual stream. Returns the result as it was, and the input of the
    /// norm after the mixer, if there is one.
    fn add_delta(
        &self,
        net: &DeltaWeights<O>,
        x: &O::Stream,
        (out, z): (O::Act, &O::Act),
        at: &O::Placed<'_>,
        pool: &mut Pool<O>,
    ) -> Result<AddedDelta<O>, ModelError> {
        // 5. Norm and gate: (N, V d), (N, V d) -> (N, V d)
        let (normed, raw) = self.ops.turn(out, &net.head_norm(), at, pool)?;
        let gated = self.ops.swiglu(z, &normed, pool)?;
        // 6. Map, norm and residual sum: (N, V d) -> (N, D)
        let after = self.layer.after_mixer.as_ref();
        let (m, mapped) = self.add_result(x, &gated, &net.out, after, pool)?;
        pool.give([normed, gated]);
        Ok((m, raw.unwrap_or_default(), mapped))
    }

    /// Advances the states of the layer by new tokens.
    pub(super) fn advance_delta(
        &self,
        net: &DeltaWeights<O>,
        given: &mut DeltaProjected<O>,
        at: &O::Placed<'_>,
        cache: (&O::Kv, usize),
        pool: &mut Pool<O>,
    ) -> Result<(), ModelError> {
        // 3. and 4.
        let convolved = self.ops.convolve_cached(&given.mixed, &net.conv, cache, at, pool)?;
        let (inputs, raw) = self.delta_inputs(net, &convolved, given, pool)?;
        given.out = self.ops.delta_rule_cached(&inputs, net.heads, cache, at, pool)?;
        inputs.give(pool);
        pool.give([convolved, raw]);
        Ok(())
    }

    /// Adds the result for new tokens to the residual stream. Also returns the layer's input.
    pub(super) fn add_cached_delta(
        &self,
        net: &DeltaWeights<O>,
        x: O::Stream,
        mut given: DeltaProjected<O>,
        at: &O::Placed<'_>,
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, O::Stream), ModelError> {
        let out = std::mem::take(&mut given.out);
        let (m, out, mapped) = self.add_delta(net, &x, (out, &given.z), at, pool)?;
        given.out = out;
        given.give(pool);
        pool.give(mapped);
        Ok((m, x))
    }

    /// Adds the gradients of the Gated DeltaNet of the layer. Returns the gradient `[N, D]` of its input, from that of its
    /// result.
    pub(super) fn delta_backward(
        &self,
        net: &DeltaWeights<O>,
        saved: SavedDelta<O>,
        at: &O::Placed<'_>,
        dm: O::Stream,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        let ops = self.ops;
        let Layer { before_mixer, after_mixer, .. } = self.layer;
        let SavedDelta { x, mut projected, convolved, states, mapped } = saved;
        // 6. (N, D) -> (N, V d)
        let out = std::mem::take(&mut projected.out);
        let (normed, raw_out) = ops.turn(out, &net.head_norm(), at, pool)?;
        let gated = ops.swiglu(&projected.z, &normed, pool)?;
        let last = (&net.out, after_mixer.as_ref());
        let dgated = self.add_result_backward(&gated, mapped, last, &dm, gradients, pool)?;
        // 5. (N, V d) -> (N, V d), (N, V d)
        let [dz, dnormed] = ops.swiglu_back([&projected.z, &normed], &dgated, gated, pool)?;
        let dout = ops.turn_back(dnormed, raw_out, &net.head_norm(), at, gradients, pool)?;
        pool.give([normed, dgated]);
        let [dmixed, da, db] =
            self.rule_backward(net, (&projected, convolved), [states, dout], at, gradients, pool)?;
        // 2. (N, C), (N, V d), (N, V), (N, V) -> (N, D)
        let before = before_mixer.as_ref();
        let h = self.norm_before(&x, before, pool)?;
        let dparts = [&dmixed, &dz, &db, &da];
        let dh = self.map_input_backward(&h, &net.inputs, dparts, gradients, pool)?;
        // 1. (N, D) -> (N, D)
        let dx = self.norm_before_backward(&x, before, &dh, dm, gradients, pool)?;
        projected.give(pool);
        pool.give([dmixed, dz, db, da, h, dh]);
        pool.give_streams([x]);
        Ok(dx)
    }

    /// Computes the gradients of the maps to queries, keys and values, to `a` and to `b`, from the states and the gradient of
    /// the rule's result.
    fn rule_backward(
        &self,
        net: &DeltaWeights<O>,
        (projected, convolved): (&DeltaProjected<O>, O::Act),
        [states, dout]: [O::Act; 2],
        at: &O::Placed<'_>,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<[O::Act; 3], ModelError> {
        let (ops, DeltaProjected { mixed, a, b, .. }) = (self.ops, projected);
        // 4. (N, V d) -> (N, C), (N, V), (N, V)
        let (inputs, raw) = self.delta_inputs(net, &convolved, projected, pool)?;
        let dinputs = ops.delta_rule_back(&inputs, net.heads, [&states, &dout], at, pool)?;
        inputs.give(pool);
        pool.give([states, dout]);
        // 3. (N, C), (N, V), (N, V) -> (N, C), (N, V), (N, V)
        let [draw, da, db] =
            ops.delta_inputs_back((&raw, [a, b]), net, dinputs, gradients, pool)?;
        let dconvolved = ops.silu_back(&convolved, draw)?;
        let dmixed = ops.convolve_back(mixed, &net.conv, &dconvolved, at, gradients, pool)?;
        pool.give([raw, convolved, dconvolved]);
        Ok([dmixed, da, db])
    }
}

//! Operations of recurrent mixers and of output gates. A device need not have kernels for them: it then refuses models with
//! these parts ([`Backend::load`](super::Backend::load)), and the operations are errors.

use maverl_kernels::recurrent::DeltaHeads;

use super::parts::no_kernel;
use super::{Done, Memory, PartOps};
use crate::files::parts::{Conv, DeltaNet};
use crate::net::gradients::Gradients;
use crate::net::linear::Linear;
use crate::net::norm::Norm;
use crate::net::pool::Pool;
use crate::net::values::Param;

/// Gated DeltaNet with its weights.
pub type DeltaWeights<O> = DeltaNet<Linear<O>, Norm<O>, Param<O>>;

/// Inputs of the gated delta rule, or their gradients.
#[derive(Debug)]
pub struct DeltaInputs<O: Memory> {
    /// Queries, keys and values, `[N, mixed_width]`.
    pub mixed: O::Act,
    /// Factors of the state, `[N, values]`; among gradients, those of their logarithms.
    pub decay: O::Act,
    /// Weights of new values, `[N, values]`.
    pub beta: O::Act,
}

impl<O: Memory> DeltaInputs<O> {
    /// Returns the buffers to the pool.
    pub(crate) fn give(self, pool: &mut Pool<O>) {
        pool.give([self.mixed, self.decay, self.beta]);
    }
}

/// Operations of recurrent mixers and of output gates, forward and backward. See [`Ops`](super::Ops).
pub trait RecurrentOps: PartOps {
    /// Multiplies activations by the sigmoid of gates.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn apply_gate(
        &self,
        _x: &Self::Act,
        _gate: &Self::Act,
        _pool: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        Err(no_kernel("output gates"))
    }

    /// Computes the gradients of [`RecurrentOps::apply_gate`] by its inputs.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn apply_gate_back(
        &self,
        _inputs: [&Self::Act; 2],
        _dout: &Self::Act,
        _pool: &mut Pool<Self>,
    ) -> Done<[Self::Act; 2]> {
        Err(no_kernel("output gates"))
    }

    /// Multiplies activations element by element.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn multiply(&self, _a: &Self::Act, _b: &Self::Act, _pool: &mut Pool<Self>) -> Done<Self::Act> {
        Err(no_kernel("short convolutions"))
    }

    /// Computes SiLU.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn silu(&self, _x: &Self::Act, _pool: &mut Pool<Self>) -> Done<Self::Act> {
        Err(no_kernel("Gated DeltaNet"))
    }

    /// Computes the gradient of [`RecurrentOps::silu`] by its input, from that of its result.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn silu_back(&self, _x: &Self::Act, _gradient: Self::Act) -> Done<Self::Act> {
        Err(no_kernel("Gated DeltaNet"))
    }

    /// Computes a causal convolution of packed rows.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn convolve(
        &self,
        _x: &Self::Act,
        _conv: &Conv<Param<Self>>,
        _at: &Self::Placed<'_>,
        _pool: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        Err(no_kernel("short convolutions"))
    }

    /// Computes the gradient of [`RecurrentOps::convolve`] by its input.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn convolve_back(
        &self,
        _x: &Self::Act,
        _conv: &Conv<Param<Self>>,
        _dy: &Self::Act,
        _at: &Self::Placed<'_>,
        _sums: &mut Gradients<'_, Self>,
        _pool: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        Err(no_kernel("short convolutions"))
    }

    /// Computes a causal convolution of new tokens, and advances the states of a layer by them.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn convolve_cached(
        &self,
        _x: &Self::Act,
        _conv: &Conv<Param<Self>>,
        _cache: (&Self::Kv, usize),
        _at: &Self::Placed<'_>,
        _pool: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        Err(no_kernel("short convolutions"))
    }

    /// Normalizes queries and keys of `raw [N, mixed_width]`, and computes the gates of the state from `a` and `b`.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn delta_inputs(
        &self,
        _raw: &Self::Act,
        _gates: [&Self::Act; 2],
        _net: &DeltaWeights<Self>,
        _pool: &mut Pool<Self>,
    ) -> Done<DeltaInputs<Self>> {
        Err(no_kernel("Gated DeltaNet"))
    }

    /// Computes the gradients of [`RecurrentOps::delta_inputs`] by `raw`, `a` and `b`, from those of its result.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn delta_inputs_back(
        &self,
        _inputs: (&Self::Act, [&Self::Act; 2]),
        _net: &DeltaWeights<Self>,
        _gradients: DeltaInputs<Self>,
        _sums: &mut Gradients<'_, Self>,
        _pool: &mut Pool<Self>,
    ) -> Done<[Self::Act; 3]> {
        Err(no_kernel("Gated DeltaNet"))
    }

    /// Computes the gated delta rule of packed rows. Also returns the states that its backward pass needs.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn delta_rule(
        &self,
        _inputs: &DeltaInputs<Self>,
        _heads: DeltaHeads,
        _at: &Self::Placed<'_>,
        _pool: &mut Pool<Self>,
    ) -> Done<[Self::Act; 2]> {
        Err(no_kernel("Gated DeltaNet"))
    }

    /// Computes the gradients of [`RecurrentOps::delta_rule`] by its inputs, from its states and the gradient of its result.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn delta_rule_back(
        &self,
        _inputs: &DeltaInputs<Self>,
        _heads: DeltaHeads,
        _states_and_dout: [&Self::Act; 2],
        _at: &Self::Placed<'_>,
        _pool: &mut Pool<Self>,
    ) -> Done<DeltaInputs<Self>> {
        Err(no_kernel("Gated DeltaNet"))
    }

    /// Computes the gated delta rule of new tokens, and advances the states of a layer by them.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn delta_rule_cached(
        &self,
        _inputs: &DeltaInputs<Self>,
        _heads: DeltaHeads,
        _cache: (&Self::Kv, usize),
        _at: &Self::Placed<'_>,
        _pool: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        Err(no_kernel("Gated DeltaNet"))
    }
}

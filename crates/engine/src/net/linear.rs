//! Linear maps of a decoder, with the correction of an adapter (LoRA: Hu et al., 2021, arXiv:2106.09685).
//!
//! A map with an adapter is one operation in which the weight of the base is a constant, so no gradient of it is
//! computed. On a CPU, each weight has a packed copy for products of few rows during rollout, which the next barrier
//! drops. Dropout is a function of counters: seed, optimizer step, row, position, map, column.

use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};

use crate::net::memory::{Cpu, Memory};
use crate::net::values::Param;

/// A linear map with the `weight [O, I]` and `bias [O]` of a checkpoint, and the correction of an adapter:
///
/// ```text
/// y = x weightᵀ + bias + scale · dropout(x) Aᵀ Bᵀ
/// ```
#[derive(Debug, Clone)]
pub struct Linear<O: Memory = Cpu> {
    pub(super) weight: Param<O>,
    pub(super) bias: Option<Param<O>>,
    pub(super) lora: Option<Lora<O>>,
    /// Weight packed for products of few rows, valid while it does not change. Clones share it.
    packed: SharedPacked<O>,
}

/// Packed weight that clones share.
#[derive(Debug)]
struct SharedPacked<O: Memory>(Arc<RwLock<Option<O::Packed>>>);

impl<O: Memory> Clone for SharedPacked<O> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<O: Memory> Linear<O> {
    pub(super) fn new(weight: Param<O>, bias: Option<Param<O>>) -> Self {
        Self { weight, bias, lora: None, packed: SharedPacked(Arc::default()) }
    }

    pub(super) fn weight(&self) -> &Param<O> {
        &self.weight
    }

    /// Iterates over its own weights, without the adapter's.
    pub(super) fn params(&mut self) -> impl Iterator<Item = &mut Param<O>> {
        [&mut self.weight].into_iter().chain(&mut self.bias)
    }

    /// Returns the number of outputs and inputs.
    pub(super) fn dims(&self) -> (usize, usize) {
        let dims = self.weight.dims();
        (dims[0], dims[1])
    }

    /// Packs the weight by a function, until [`Linear::unpack`].
    pub(super) fn pack(&self, pack: impl FnOnce(&Param<O>) -> O::Packed) {
        let mut packed = self.packed.0.write().unwrap_or_else(PoisonError::into_inner);
        packed.get_or_insert_with(|| pack(&self.weight));
    }

    /// Packs the weight by a function, as that of another map, which has no values of its own.
    pub(super) fn move_packed(&self, to: &Self, pack: impl FnOnce(&Param<O>) -> O::Packed) {
        let own = self.packed.0.write().unwrap_or_else(PoisonError::into_inner).take();
        to.pack(|_| own.unwrap_or_else(|| pack(&self.weight)));
    }

    /// Drops the packed weight, because the weight may change. The only form of a weight is kept.
    pub(super) fn unpack(&self) {
        if !self.weight.has_values() {
            return;
        }
        *self.packed.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Borrows the packed weight, if the weight is packed.
    pub(super) fn packed(&self) -> impl Deref<Target = Option<O::Packed>> {
        self.packed.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Output head of a decoder: a linear map, and a bound of the logits (Gemma 2, arXiv:2408.00118, section 2):
///
/// ```text
/// z ← c tanh(z / c)
/// ```
#[derive(Debug, Clone)]
pub struct OutputHead<O: Memory = Cpu> {
    /// Map to logits before the bound.
    pub(super) map: Linear<O>,
    /// Bound `c`, if there is one.
    pub(super) softcap: Option<f32>,
}

/// Correction of one linear map: `scale · dropout(x) Aᵀ Bᵀ`.
#[derive(Debug, Clone)]
pub(super) struct Lora<O: Memory = Cpu> {
    /// Down projection `A`, `[r, I]`.
    pub(super) a: Param<O>,
    /// Up projection `B`, `[O, r]`.
    pub(super) b: Param<O>,
    /// Scale: `alpha / r`, or `alpha / sqrt(r)` with rslora.
    pub(super) scale: f32,
    /// Dropout of `A`'s input; the map itself gets all of `x`.
    pub(super) dropout: Option<Dropout>,
}

impl<O: Memory> Lora<O> {
    /// Returns rank, inputs and outputs.
    pub(super) fn dims(&self) -> (usize, usize, usize) {
        (self.a.dims()[0], self.a.dims()[1], self.b.dims()[0])
    }
}

/// Inverted dropout whose mask is a function of counters: a key for each token, the index of the linear map, and the
/// column. The same keys give the same mask in every batch and in every order.
#[derive(Debug, Clone)]
pub(super) struct Dropout {
    /// Share of numbers that are set to 0; the others are divided by one minus it.
    pub(super) p: f32,
    /// Index of the linear map in the model.
    pub(super) place: u64,
    /// Keys, one for each token, `[N]`.
    pub(super) keys: Arc<[u64]>,
}

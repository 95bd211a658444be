//! Linear maps of a decoder, with the correction of an adapter (LoRA: Hu et al., 2021, arXiv:2106.09685).

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

use maverl_kernels::matmul::{Matmul, PackedWeight, Precision};
use maverl_kernels::sample::{derive_seed, uniform};
use rayon::prelude::*;

use crate::model::gradients::Gradients;
use crate::model::pool::Pool;
use crate::model::values::Param;

/// A linear map with the `weight [O, I]` and `bias [O]` of a checkpoint, and the correction of an adapter:
///
/// ```text
/// y = x weightᵀ + bias + scale · dropout(x) Aᵀ Bᵀ
/// ```
#[derive(Clone)]
pub(super) struct Linear {
    weight: Param,
    bias: Option<Param>,
    pub(super) lora: Option<Lora>,
    /// Weight packed for products of few rows, valid while it does not change. Clones share it.
    packed: Arc<RwLock<Option<PackedWeight>>>,
}

impl Linear {
    pub(super) fn new(weight: Param, bias: Option<Param>) -> Self {
        Self { weight, bias, lora: None, packed: Arc::default() }
    }

    pub(super) fn weight(&self) -> &Param {
        &self.weight
    }

    /// Iterates over its own weights, without the adapter's.
    pub(super) fn params(&mut self) -> impl Iterator<Item = &mut Param> {
        [&mut self.weight].into_iter().chain(&mut self.bias)
    }

    fn dims(&self) -> (usize, usize) {
        let dims = self.weight.dims();
        (dims[0], dims[1])
    }

    /// Packs the weight, until [`Linear::unpack`].
    pub(super) fn pack(&self, precision: Precision) {
        let mut packed = self.packed.write().unwrap_or_else(PoisonError::into_inner);
        let (o, i) = self.dims();
        packed.get_or_insert_with(|| PackedWeight::pack(precision, &self.weight.values(), o, i));
    }

    /// Returns the bytes of the packed weight.
    pub(super) fn packed_bytes(&self, precision: Precision) -> usize {
        let (o, i) = self.dims();
        PackedWeight::bytes(precision, o, i)
    }

    /// Drops the packed weight, because the weight may change.
    pub(super) fn unpack(&self) {
        *self.packed.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Computes `y [N, O]` in a buffer of the pool, for `x [N, I]`.
    pub(super) fn project(&self, x: &[f32], precision: Precision, pool: &mut Pool) -> Vec<f32> {
        let (o, i) = self.dims();
        let mut y = pool.take(x.len() / i * o);
        self.forward(x, &mut y, precision.set(), pool);
        y
    }

    /// Computes `y [N, O]`, overwritten or added to.
    pub(super) fn forward(&self, x: &[f32], y: &mut [f32], products: Matmul, pool: &mut Pool) {
        let (o, i) = self.dims();
        let n = x.len() / i;
        match &*self.packed.read().unwrap_or_else(PoisonError::into_inner) {
            Some(weight) => products.nt_packed(x, weight, y, n),
            None => products.nt(x, &self.weight.values(), y, n, o, i),
        }
        if let Some(bias) = &self.bias {
            let bias = bias.values();
            for row in y.chunks_exact_mut(o) {
                row.iter_mut().zip(&*bias).for_each(|(y, bias)| *y += bias);
            }
        }
        if let Some(lora) = &self.lora {
            lora.forward(x, y, n, pool);
        }
    }

    /// Computes the gradients from `dy [N, O]`: those of the weights are added, `dx [N, I]` is overwritten or added to.
    ///
    /// ```text
    /// dweight += dyᵀ x,   dbias += Σ_rows dy,   dx = dy weight
    /// ```
    pub(super) fn backward(
        &self,
        x: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        products: Matmul,
        gradients: &mut Gradients<'_>,
        pool: &mut Pool,
    ) {
        let (o, i) = self.dims();
        let n = x.len() / i;
        if let Some(dweight) = gradients.of(self.weight.slot()) {
            products.precision().add().tn(dy, x, dweight, o, i, n);
        }
        if let Some(dbias) = self.bias.as_ref().and_then(|bias| gradients.of(bias.slot())) {
            for dy in dy.chunks_exact(o) {
                dbias.iter_mut().zip(dy).for_each(|(dbias, dy)| *dbias += dy);
            }
        }
        products.nn(dy, &self.weight.values(), dx, n, i, o);
        if let Some(lora) = &self.lora {
            lora.backward(x, dy, dx, gradients, pool);
        }
    }
}

/// Correction of one linear map: `scale · dropout(x) Aᵀ Bᵀ`, in f32.
#[derive(Debug, Clone)]
pub(super) struct Lora {
    /// Down projection `A`, `[r, I]`.
    pub(super) a: Param,
    /// Up projection `B`, `[O, r]`.
    pub(super) b: Param,
    /// Scale: `alpha / r`, or `alpha / sqrt(r)` with rslora.
    pub(super) scale: f32,
    /// Dropout of `A`'s input; the map itself gets all of `x`.
    pub(super) dropout: Option<Dropout>,
}

impl Lora {
    /// Returns rank, inputs and outputs.
    fn dims(&self) -> (usize, usize, usize) {
        (self.a.dims()[0], self.a.dims()[1], self.b.dims()[0])
    }

    /// Returns the input of `A`.
    fn kept<'x>(&self, x: &'x [f32], pool: &mut Pool) -> Cow<'x, [f32]> {
        let Some(dropout) = &self.dropout else { return Cow::Borrowed(x) };
        let mut x = pool.copy(x);
        dropout.apply(&mut x, self.a.dims()[1]);
        Cow::Owned(x)
    }

    /// Computes `scale · kept Aᵀ`, `[N, r]`.
    fn low(&self, kept: &[f32], n: usize, pool: &mut Pool) -> Vec<f32> {
        let (r, i, _) = self.dims();
        let mut low = pool.take(n * r);
        Precision::F32.set().nt(kept, &self.a.values(), &mut low, n, r, i);
        low.iter_mut().for_each(|low| *low *= self.scale);
        low
    }

    fn forward(&self, x: &[f32], y: &mut [f32], n: usize, pool: &mut Pool) {
        let (r, _, o) = self.dims();
        let kept = self.kept(x, pool);
        let low = self.low(&kept, n, pool);
        Precision::F32.add().nt(&low, &self.b.values(), y, n, o, r);
        pool.give([low]);
        give_kept(kept, pool);
    }

    /// Computes `dB += dyᵀ low`, `dA += dlowᵀ kept`, `dx += dropout(dlow A)`, with `dlow = scale · dy B`.
    fn backward(
        &self,
        x: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        gradients: &mut Gradients<'_>,
        pool: &mut Pool,
    ) {
        let (r, i, o) = self.dims();
        let n = x.len() / i;
        let (set, add) = (Precision::F32.set(), Precision::F32.add());
        let kept = self.kept(x, pool);
        let mut low = self.low(&kept, n, pool);
        if let Some(db) = gradients.of(self.b.slot()) {
            add.tn(dy, &low, db, o, r, n);
        }
        set.nn(dy, &self.b.values(), &mut low, n, r, o);
        low.iter_mut().for_each(|dlow| *dlow *= self.scale);
        if let Some(da) = gradients.of(self.a.slot()) {
            add.tn(&low, &kept, da, r, i, n);
        }
        match &self.dropout {
            None => add.nn(&low, &self.a.values(), dx, n, i, r),
            Some(dropout) => {
                let mut through = pool.take(n * i);
                set.nn(&low, &self.a.values(), &mut through, n, i, r);
                dropout.apply(&mut through, i);
                dx.iter_mut().zip(&through).for_each(|(dx, through)| *dx += through);
                pool.give([through]);
            }
        }
        pool.give([low]);
        give_kept(kept, pool);
    }
}

fn give_kept(kept: Cow<'_, [f32]>, pool: &mut Pool) {
    if let Cow::Owned(kept) = kept {
        pool.give([kept]);
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

impl Dropout {
    /// Sets dropped numbers of `x [N, width]` to 0 and scales the others.
    fn apply(&self, x: &mut [f32], width: usize) {
        assert_eq!(x.len(), self.keys.len() * width, "dropout: a key for each token");
        let (p, keep) = (f64::from(self.p), 1.0 / (1.0 - self.p));
        x.par_chunks_mut(width).zip(&self.keys[..]).for_each(|(row, key)| {
            let seed = derive_seed(*key, self.place);
            for (column, x) in row.iter_mut().enumerate() {
                *x = if uniform(seed, column as u64) < p { 0.0 } else { *x * keep };
            }
        });
    }
}

#[cfg(test)]
mod tests;

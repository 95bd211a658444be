//! Operations of parts that only some families have. A device need not have kernels for them: it then refuses models with these
//! parts ([`Backend::load`](super::Backend::load)), and the operations are errors.

use maverl_kernels::attention::Heads;

use super::{Done, LinearOps};
use crate::files::ModelError;
use crate::files::parts::{Experts, QueryScale};
use crate::net::experts::{BalanceTerm, LayerRoutes, SavedExperts};
use crate::net::gradients::Gradients;
use crate::net::linear::Linear;
use crate::net::norm::Norm;
use crate::net::pool::Pool;
use crate::net::values::Param;

/// Operations of parts that only some families have, forward and backward. See [`Ops`](super::Ops).
pub trait PartOps: LinearOps {
    /// Tokens of a pass, where the device reads them.
    type Placed<'a>: Sync;

    /// Multiplies a residual stream by a factor.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn scale_stream(&self, _x: &mut Self::Stream, _factor: f32) -> Done<()> {
        Err(no_kernel("a factor of embeddings"))
    }

    /// Copies a residual stream to activations, as input of maps without a norm before them.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn copy_stream(&self, _x: &Self::Stream, _pool: &mut Pool<Self>) -> Done<Self::Act> {
        Err(no_kernel("layers without a norm before them"))
    }

    /// Adds the gradient of [`PartOps::copy_stream`]'s result to that of its input.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn add_to_stream(&self, _onto: Self::Stream, _dx: &Self::Act) -> Done<Self::Stream> {
        Err(no_kernel("layers without a norm before them"))
    }

    /// Computes the sum of `onto` and `x`.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn sum_onto(
        &self,
        _onto: &Self::Stream,
        _x: &Self::Act,
        _pool: &mut Pool<Self>,
    ) -> Done<Self::Stream> {
        Err(no_kernel("experts"))
    }

    /// Computes a mixture of experts of `h [N, D]`, with the experts of routes where there are any.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn experts(
        &self,
        _h: (&Self::Act, Option<LayerRoutes<'_>>),
        _of: &Experts<Linear<Self>>,
        _pool: &mut Pool<Self>,
    ) -> Done<(Self::Act, SavedExperts<Self>)> {
        Err(no_kernel("experts"))
    }

    /// Computes the gradient `[N, D]` of [`PartOps::experts`] by `h`, from that of its result and a term that balances the
    /// load. Every expert gets a gradient, if only of zero.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn experts_back(
        &self,
        _h: &Self::Act,
        _of: &Experts<Linear<Self>>,
        _saved: SavedExperts<Self>,
        _terms: (&Self::Act, Option<BalanceTerm<'_>>),
        _sums: &mut Gradients<'_, Self>,
        _pool: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        Err(no_kernel("experts"))
    }

    /// Computes the sum of `onto` and the RMS norm of each row of `x`.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn norm_onto(
        &self,
        _onto: &Self::Stream,
        _x: &Self::Act,
        _norm: &Norm<Self>,
        _pool: &mut Pool<Self>,
    ) -> Done<Self::Stream> {
        Err(no_kernel("norms after attention and MLP"))
    }

    /// Computes the gradient of [`PartOps::norm_onto`] by `x`, from that of its result.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn norm_onto_back(
        &self,
        _x: &Self::Act,
        _norm: &Norm<Self>,
        _dy: &Self::Stream,
        _sums: &mut Gradients<'_, Self>,
        _pool: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        Err(no_kernel("norms after attention and MLP"))
    }

    /// Splits rows into columns of these widths.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn split_columns<const N: usize>(
        &self,
        _x: &Self::Act,
        _widths: [usize; N],
        _pool: &mut Pool<Self>,
    ) -> Done<[Self::Act; N]> {
        Err(no_kernel("fused maps"))
    }

    /// Joins the columns of [`PartOps::split_columns`].
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn join_columns<const N: usize>(
        &self,
        _parts: [&Self::Act; N],
        _widths: [usize; N],
        _pool: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        Err(no_kernel("fused maps"))
    }

    /// Multiplies the queries of each token, or their gradients, by the factor of its position.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn scale_queries(
        &self,
        _q: &mut Self::Act,
        _scale: QueryScale,
        _at: &Self::Placed<'_>,
    ) -> Done<()> {
        Err(no_kernel("queries scaled by their positions"))
    }

    /// Computes causal attention of packed rows with sinks `[heads]`, from queries, keys and values.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn attend_sinks(
        &self,
        _qkv: [&Self::Act; 3],
        _at: &Self::Placed<'_>,
        _heads: (Heads, &Param<Self>),
        _pool: &mut Pool<Self>,
    ) -> Done<(Self::Act, Self::Lse)> {
        Err(no_kernel("sinks of attention"))
    }

    /// Computes the gradients of [`PartOps::attend_sinks`] by queries, keys and values, from its result and the gradient of it.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn attend_sinks_back(
        &self,
        _qkv: [&Self::Act; 3],
        _out: [&Self::Act; 2],
        _at: (&Self::Lse, &Self::Placed<'_>),
        _heads: (Heads, &Param<Self>),
        _sums: &mut Gradients<'_, Self>,
        _pool: &mut Pool<Self>,
    ) -> Done<[Self::Act; 3]> {
        Err(no_kernel("sinks of attention"))
    }

    /// Computes causal attention of new tokens to the cache of a layer, with sinks `[heads]`.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn attend_cached_sinks(
        &self,
        _q: &Self::Act,
        _cache: (&Self::Kv, usize),
        _at: &Self::Placed<'_>,
        _heads: (Heads, &Param<Self>),
        _pool: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        Err(no_kernel("sinks of attention"))
    }

    /// Computes `gelu(gate) * up`.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn geglu(&self, _gate: &Self::Act, _up: &Self::Act, _pool: &mut Pool<Self>) -> Done<Self::Act> {
        Err(no_kernel("GELU"))
    }

    /// Computes the gradients of [`PartOps::geglu`] by `gate` and `up`. The buffer of its result is used again.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no kernel for it.
    fn geglu_back(
        &self,
        _inputs: [&Self::Act; 2],
        _dact: &Self::Act,
        _act: Self::Act,
        _pool: &mut Pool<Self>,
    ) -> Done<[Self::Act; 2]> {
        Err(no_kernel("GELU"))
    }
}

pub(super) fn no_kernel(what: &str) -> ModelError {
    ModelError::wrong_argument(format!("this device has no kernel for {what}"))
}

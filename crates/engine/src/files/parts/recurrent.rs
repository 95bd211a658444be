//! Mixers with a state of fixed size.

use maverl_kernels::recurrent::DeltaHeads;

use super::{Mapping, Maps};

/// Gated DeltaNet (Yang et al., 2024, arXiv:2412.06464):
///
/// ```text
/// m, z, b, a = inputs(x)
/// q, k, v = split(silu(conv(m)))
/// o = delta_rule(normalize(q), normalize(k), v, decay(a), sigmoid(b))
/// out(norm(o) * silu(z))
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct DeltaNet<L, N, T> {
    /// Heads of keys and values.
    pub heads: DeltaHeads,
    /// Maps to queries, keys and values, to the gate of the result, and to the gates of the state: `m`, `z`, `b`, `a`.
    pub inputs: Maps<L, 4>,
    /// Convolution of queries, keys and values.
    pub conv: Conv<T>,
    /// Logarithm of the rate of decay, `[values]`.
    pub a_log: T,
    /// Bias of the time step, `[values]`.
    pub dt_bias: T,
    /// Norm of each value head of the result.
    pub norm: N,
    /// Map back to the residual stream.
    pub out: L,
}

/// Short convolution with gates before and after it (LFM2, transformers `Lfm2ShortConv`):
///
/// ```text
/// b, c, u = inputs(x)
/// out(c * conv(b * u))
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ShortConv<L, T> {
    /// Maps to both gates and to the input of the convolution: `b`, `c`, `u`.
    pub inputs: Maps<L, 3>,
    /// Convolution.
    pub conv: Conv<T>,
    /// Map back to the residual stream.
    pub out: L,
}

/// Depthwise causal convolution.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv<T> {
    /// Number of tokens that a result depends on.
    pub kernel: usize,
    /// Weights `[channels, 1, kernel]`.
    pub weight: T,
    /// Bias `[channels]`, if there is one.
    pub bias: Option<T>,
}

impl<T> Conv<T> {
    pub(super) fn others(&self) -> impl Iterator<Item = &T> {
        [&self.weight].into_iter().chain(&self.bias)
    }

    pub(super) fn others_mut(&mut self) -> impl Iterator<Item = &mut T> {
        [&mut self.weight].into_iter().chain(&mut self.bias)
    }

    fn try_map<U, E>(&self, other: &dyn Fn(&T) -> Result<U, E>) -> Result<Conv<U>, E> {
        let bias = self.bias.as_ref().map(other).transpose()?;
        Ok(Conv { kernel: self.kernel, weight: other(&self.weight)?, bias })
    }
}

impl<L, N, T> DeltaNet<L, N, T> {
    pub(super) fn others(&self) -> Vec<&T> {
        self.conv.others().chain([&self.a_log, &self.dt_bias]).collect()
    }

    pub(super) fn others_mut(&mut self) -> Vec<&mut T> {
        self.conv.others_mut().chain([&mut self.a_log, &mut self.dt_bias]).collect()
    }

    pub(super) fn try_map<M, P, U, E>(
        &self,
        to: Mapping<'_, L, N, T, M, P, U, E>,
    ) -> Result<DeltaNet<M, P, U>, E> {
        Ok(DeltaNet {
            heads: self.heads,
            inputs: self.inputs.try_map(to.linear)?,
            conv: self.conv.try_map(to.other)?,
            a_log: (to.other)(&self.a_log)?,
            dt_bias: (to.other)(&self.dt_bias)?,
            norm: (to.norm)(&self.norm)?,
            out: (to.linear)(&self.out)?,
        })
    }
}

impl<L, T> ShortConv<L, T> {
    pub(super) fn try_map<M, U, E>(
        &self,
        linear: &dyn Fn(&L) -> Result<M, E>,
        other: &dyn Fn(&T) -> Result<U, E>,
    ) -> Result<ShortConv<M, U>, E> {
        Ok(ShortConv {
            inputs: self.inputs.try_map(linear)?,
            conv: self.conv.try_map(other)?,
            out: linear(&self.out)?,
        })
    }
}

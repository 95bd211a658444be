//! Parts of a layer through which tokens depend on earlier ones.

use maverl_kernels::attention::Heads;

use super::{DeltaNet, Mapping, Maps, MixerShape, NamedShape, SINKS, ShortConv, TensorShape};

/// Part of a layer through which tokens depend on earlier ones.
#[derive(Debug, Clone, PartialEq)]
pub enum Mixer<L, N, T> {
    /// Attention.
    Attention(Attention<L, N>),
    /// Gated DeltaNet.
    DeltaNet(DeltaNet<L, N, T>),
    /// Short convolution.
    ShortConv(ShortConv<L, T>),
}

/// Causal attention with grouped queries (Ainslie et al., 2023, arXiv:2305.13245):
///
/// ```text
/// q, k, v = qkv(x)
/// o(attention(scale(rope(norm(q))), rope(norm(k)), v))
/// ```
///
/// With an output gate, the map to queries also gives a gate of each head, after its query (Qiu et al., 2025,
/// arXiv:2505.06708):
///
/// ```text
/// o(attention(..) * sigmoid(gate))
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Attention<L, N> {
    /// Heads of queries and keys, window and other options of scores.
    pub heads: Heads,
    /// Maps to queries, keys and values.
    pub qkv: Maps<L, 3>,
    /// Map of the attended values.
    pub o: L,
    /// Norm of the queries, if there is one: of each head, or of all heads together, by its width.
    pub q_norm: Option<N>,
    /// Norm of the keys, if there is one.
    pub k_norm: Option<N>,
    /// Index of the rotary embedding in [`HfConfig::ropes`](crate::files::HfConfig::ropes); without one, positions have no effect.
    pub rope: Option<usize>,
    /// Factors of queries by their positions, if there are any.
    pub query_scale: Option<QueryScale>,
    /// True if each query head has a sink: a learned score under the softmax without a key or a value.
    pub sinks: bool,
    /// True if there is an output gate.
    pub gate: bool,
}

/// Factors of the queries of long sequences (Ministral 3; Llama 4), for position `p`:
///
/// ```text
/// q ← q (1 + beta ln(1 + floor(p / original)))
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueryScale {
    /// Growth.
    pub beta: f32,
    /// Context before scaling.
    pub original: f32,
}

impl MixerShape {
    /// Returns the name and the dimensions of each tensor, in the order of [`HfConfig::tensors`](crate::files::HfConfig).
    pub fn tensors(&self) -> Vec<NamedShape> {
        let maps = self.linears().flat_map(|map| map.tensors());
        let others = self.others().into_iter().map(TensorShape::tensor);
        let norms = self.norms().into_iter().map(|norm| norm.tensor());
        maps.chain(others).chain(norms).chain(self.sinks()).collect()
    }

    /// Returns the name and the dimensions of the sinks of attention, if it has any.
    fn sinks(&self) -> Option<NamedShape> {
        let attention = self.attention().filter(|attention| attention.sinks)?;
        Some((SINKS.to_owned(), vec![attention.heads.q]))
    }
}

impl<L, N, T> Mixer<L, N, T> {
    /// Returns the attention, if it is one.
    pub fn attention(&self) -> Option<&Attention<L, N>> {
        match self {
            Self::Attention(attention) => Some(attention),
            Self::DeltaNet(_) | Self::ShortConv(_) => None,
        }
    }

    /// Iterates over the linear maps, in the order of checkpoints.
    pub fn linears(&self) -> impl Iterator<Item = &L> {
        let (inputs, last) = match self {
            Self::Attention(Attention { qkv, o, .. }) => (qkv.as_slice(), o),
            Self::DeltaNet(DeltaNet { inputs, out, .. }) => (inputs.as_slice(), out),
            Self::ShortConv(ShortConv { inputs, out, .. }) => (inputs.as_slice(), out),
        };
        inputs.iter().chain([last])
    }

    /// Iterates over the linear maps, in the order of checkpoints.
    pub(crate) fn linears_mut(&mut self) -> impl Iterator<Item = &mut L> {
        let (inputs, last) = match self {
            Self::Attention(Attention { qkv, o, .. }) => (qkv.as_mut_slice(), o),
            Self::DeltaNet(DeltaNet { inputs, out, .. }) => (inputs.as_mut_slice(), out),
            Self::ShortConv(ShortConv { inputs, out, .. }) => (inputs.as_mut_slice(), out),
        };
        inputs.iter_mut().chain([last])
    }

    /// Returns the norms.
    pub(crate) fn norms(&self) -> Vec<&N> {
        match self {
            Self::Attention(Attention { q_norm, k_norm, .. }) => {
                q_norm.iter().chain(k_norm).collect()
            }
            Self::DeltaNet(net) => vec![&net.norm],
            Self::ShortConv(_) => Vec::new(),
        }
    }

    pub(super) fn norms_mut(&mut self) -> Vec<&mut N> {
        match self {
            Self::Attention(Attention { q_norm, k_norm, .. }) => {
                q_norm.iter_mut().chain(k_norm).collect()
            }
            Self::DeltaNet(net) => vec![&mut net.norm],
            Self::ShortConv(_) => Vec::new(),
        }
    }

    /// Returns the tensors that are neither of linear maps nor of norms.
    pub(crate) fn others(&self) -> Vec<&T> {
        match self {
            Self::Attention(_) => Vec::new(),
            Self::DeltaNet(net) => net.others(),
            Self::ShortConv(net) => net.conv.others().collect(),
        }
    }

    /// Returns the tensors that are neither of linear maps nor of norms.
    pub(crate) fn others_mut(&mut self) -> Vec<&mut T> {
        match self {
            Self::Attention(_) => Vec::new(),
            Self::DeltaNet(net) => net.others_mut(),
            Self::ShortConv(net) => net.conv.others_mut().collect(),
        }
    }

    pub(super) fn try_map<M, P, U, E>(
        &self,
        to: Mapping<'_, L, N, T, M, P, U, E>,
    ) -> Result<Mixer<M, P, U>, E> {
        Ok(match self {
            Self::Attention(attention) => Mixer::Attention(attention.try_map(to.linear, to.norm)?),
            Self::DeltaNet(net) => Mixer::DeltaNet(net.try_map(to)?),
            Self::ShortConv(net) => Mixer::ShortConv(net.try_map(to.linear, to.other)?),
        })
    }
}

impl<L, N> Attention<L, N> {
    fn try_map<M, P, E>(
        &self,
        linear: &dyn Fn(&L) -> Result<M, E>,
        norm: &dyn Fn(&N) -> Result<P, E>,
    ) -> Result<Attention<M, P>, E> {
        let Self { heads, qkv, o, q_norm, k_norm, rope, query_scale, sinks, gate } = self;
        let of = |found: &Option<N>| found.as_ref().map(norm).transpose();
        Ok(Attention {
            heads: *heads,
            qkv: qkv.try_map(linear)?,
            o: linear(o)?,
            q_norm: of(q_norm)?,
            k_norm: of(k_norm)?,
            rope: *rope,
            query_scale: *query_scale,
            sinks: *sinks,
            gate: *gate,
        })
    }
}

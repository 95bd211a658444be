//! Parts of a decoder layer.
//!
//! A family of models is a list of layers, and a layer is a struct of parts. The types are written over `L`, which stands
//! for a linear map, and `N`, which stands for a norm: [`LayerShape`] has their names and shapes, as a configuration
//! describes them, and the decoder has their weights. Loading, saving, adapters, predictions of memory and `maverl inspect`
//! walk the parts, so that they need no change for another family.

use maverl_kernels::attention::Heads;

/// Layer of a decoder. `x` is the residual stream:
///
/// ```text
/// m = x + attention(norm(x))
/// y = m + mlp(norm(m))
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Layer<L, N> {
    /// Norm of the attention's input.
    pub before_attention: N,
    /// Attention.
    pub attention: Attention<L, N>,
    /// Norm of the MLP's input.
    pub before_mlp: N,
    /// MLP.
    pub mlp: Mlp<L>,
}

/// Causal attention with grouped queries (Ainslie et al., 2023, arXiv:2305.13245):
///
/// ```text
/// o(attention(rope(norm(q(x))), rope(norm(k(x))), v(x)))
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Attention<L, N> {
    /// Heads of queries and keys.
    pub heads: Heads,
    /// Map to queries.
    pub q: L,
    /// Map to keys.
    pub k: L,
    /// Map to values.
    pub v: L,
    /// Map of the attended values.
    pub o: L,
    /// Norm of each head of the queries, if there is one.
    pub q_norm: Option<N>,
    /// Norm of each head of the keys, if there is one.
    pub k_norm: Option<N>,
}

/// Gated MLP (Shazeer, 2020, arXiv:2002.05202):
///
/// ```text
/// down(silu(gate(x)) * up(x))
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Mlp<L> {
    /// Map whose result passes through the activation.
    pub gate: L,
    /// Map whose result is multiplied by it.
    pub up: L,
    /// Map back to the residual stream.
    pub down: L,
}

/// Name and shape of a linear map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearShape {
    /// Name within the layer, without `.weight`.
    pub name: &'static str,
    /// Number of outputs.
    pub output: usize,
    /// Number of inputs.
    pub input: usize,
    /// True if it has a bias.
    pub bias: bool,
}

/// Name and shape of a norm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormShape {
    /// Name within the layer, without `.weight`.
    pub name: &'static str,
    /// Elements of a row.
    pub width: usize,
    /// Constant added to the mean square.
    pub eps: f32,
}

/// Layer of a configuration.
pub type LayerShape = Layer<LinearShape, NormShape>;

/// Name and dimensions of a tensor.
type NamedShape = (String, Vec<usize>);

impl LinearShape {
    pub(super) fn new(name: &'static str, output: usize, input: usize, bias: bool) -> Self {
        Self { name, output, input, bias }
    }

    fn tensors(self) -> impl Iterator<Item = NamedShape> {
        let Self { name, output, input, bias } = self;
        let bias = bias.then(|| (format!("{name}.bias"), vec![output]));
        [(format!("{name}.weight"), vec![output, input])].into_iter().chain(bias)
    }
}

impl NormShape {
    /// Returns the name and the dimensions of its weight.
    pub(crate) fn tensor(self) -> NamedShape {
        (format!("{}.weight", self.name), vec![self.width])
    }
}

impl Attention<LinearShape, NormShape> {
    /// Iterates over the name and the dimensions of each tensor, in the order of [`HfConfig::tensors`](super::HfConfig).
    pub fn tensors(&self) -> impl Iterator<Item = NamedShape> {
        let Self { heads: _, q, k, v, o, q_norm, k_norm } = self;
        let maps = [q, k, v, o].into_iter().flat_map(|map| map.tensors());
        maps.chain(q_norm.iter().chain(k_norm).map(|norm| norm.tensor()))
    }
}

impl Mlp<LinearShape> {
    /// Iterates over the name and the dimensions of each tensor, in the order of [`HfConfig::tensors`](super::HfConfig).
    pub fn tensors(&self) -> impl Iterator<Item = NamedShape> {
        let Self { gate, up, down } = self;
        [gate, up, down].into_iter().flat_map(|map| map.tensors())
    }
}

impl LayerShape {
    /// Iterates over the name within the layer and the dimensions of each tensor, in the order of
    /// [`HfConfig::tensors`](super::HfConfig).
    pub fn tensors(&self) -> impl Iterator<Item = NamedShape> {
        let Self { before_attention, attention, before_mlp, mlp } = self;
        let attention = [before_attention.tensor()].into_iter().chain(attention.tensors());
        attention.chain([before_mlp.tensor()]).chain(mlp.tensors())
    }
}

impl<L, N> Layer<L, N> {
    /// Iterates over the linear maps, in the order of checkpoints.
    pub fn linears(&self) -> impl Iterator<Item = &L> {
        let Attention { q, k, v, o, .. } = &self.attention;
        let Mlp { gate, up, down } = &self.mlp;
        [q, k, v, o, gate, up, down].into_iter()
    }

    /// Iterates over the linear maps, in the order of checkpoints.
    pub(crate) fn linears_mut(&mut self) -> impl Iterator<Item = &mut L> {
        let Attention { q, k, v, o, .. } = &mut self.attention;
        let Mlp { gate, up, down } = &mut self.mlp;
        [q, k, v, o, gate, up, down].into_iter()
    }

    /// Iterates over the norms.
    pub(crate) fn norms_mut(&mut self) -> impl Iterator<Item = &mut N> {
        let Attention { q_norm, k_norm, .. } = &mut self.attention;
        let heads = q_norm.iter_mut().chain(k_norm);
        [&mut self.before_attention, &mut self.before_mlp].into_iter().chain(heads)
    }

    /// Builds a layer with other linear maps and norms.
    ///
    /// # Errors
    ///
    /// The first error of a function.
    pub(crate) fn try_map<M, P, E>(
        &self,
        linear: &dyn Fn(&L) -> Result<M, E>,
        norm: &dyn Fn(&N) -> Result<P, E>,
    ) -> Result<Layer<M, P>, E> {
        let Self { before_attention, attention, before_mlp, mlp } = self;
        let Attention { heads, q, k, v, o, q_norm, k_norm } = attention;
        Ok(Layer {
            before_attention: norm(before_attention)?,
            attention: Attention {
                heads: *heads,
                q: linear(q)?,
                k: linear(k)?,
                v: linear(v)?,
                o: linear(o)?,
                q_norm: q_norm.as_ref().map(norm).transpose()?,
                k_norm: k_norm.as_ref().map(norm).transpose()?,
            },
            before_mlp: norm(before_mlp)?,
            mlp: Mlp { gate: linear(&mlp.gate)?, up: linear(&mlp.up)?, down: linear(&mlp.down)? },
        })
    }
}

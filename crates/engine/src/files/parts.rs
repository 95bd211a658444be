//! Parts of a decoder layer.
//!
//! A family of models is a list of layers, and a layer is a struct of parts. The types are written over `L`, which stands
//! for a linear map, and `N`, which stands for a norm: [`LayerShape`] has their names and shapes, as a configuration
//! describes them, and the decoder has their weights. Loading, saving, adapters, predictions of memory and `maverl inspect`
//! walk the parts, so that they need no change for another family.

mod mlp;

use maverl_kernels::attention::Heads;

pub(crate) use mlp::ExpertLayout;
pub use mlp::{Activation, Experts, GatedMlp, Mlp};

/// Layer of a decoder. `x` is the residual stream; a norm that is missing changes nothing:
///
/// ```text
/// m = x + after_attention(attention(before_attention(x)))
/// y = m + after_mlp(mlp(before_mlp(m)))
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Layer<L, N> {
    /// Norm of the attention's input.
    pub before_attention: Option<N>,
    /// Attention.
    pub attention: Attention<L, N>,
    /// Norm of the attention's result.
    pub after_attention: Option<N>,
    /// Norm of the MLP's input.
    pub before_mlp: Option<N>,
    /// MLP.
    pub mlp: Mlp<L>,
    /// Norm of the MLP's result.
    pub after_mlp: Option<N>,
}

/// Causal attention with grouped queries (Ainslie et al., 2023, arXiv:2305.13245):
///
/// ```text
/// q, k, v = qkv(x)
/// o(attention(scale(rope(norm(q))), rope(norm(k)), v))
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
    /// Index of the rotary embedding in [`HfConfig::ropes`](super::HfConfig::ropes); without one, positions have no effect.
    pub rope: Option<usize>,
    /// Factors of queries by their positions, if there are any.
    pub query_scale: Option<QueryScale>,
    /// True if each query head has a sink: a learned score under the softmax without a key or a value.
    pub sinks: bool,
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

/// `N` maps of one input.
#[derive(Debug, Clone, PartialEq)]
pub enum Maps<L, const N: usize> {
    /// A linear map for each.
    Split([L; N]),
    /// One linear map, whose outputs are divided into columns of these widths.
    Fused(L, [usize; N]),
}

impl<L, const N: usize> Maps<L, N> {
    /// Iterates over the linear maps, in the order of checkpoints.
    pub fn linears(&self) -> impl Iterator<Item = &L> {
        match self {
            Self::Split(maps) => maps.iter(),
            Self::Fused(map, _) => std::slice::from_ref(map).iter(),
        }
    }

    fn linears_mut(&mut self) -> impl Iterator<Item = &mut L> {
        match self {
            Self::Split(maps) => maps.iter_mut(),
            Self::Fused(map, _) => std::slice::from_mut(map).iter_mut(),
        }
    }

    fn try_map<M, E>(&self, linear: &dyn Fn(&L) -> Result<M, E>) -> Result<Maps<M, N>, E> {
        match self {
            Self::Fused(map, widths) => Ok(Maps::Fused(linear(map)?, *widths)),
            Self::Split(maps) => {
                let mapped = maps.iter().map(linear).collect::<Result<Vec<M>, E>>()?;
                let Ok(mapped) = mapped.try_into() else { unreachable!("as many maps as before") };
                Ok(Maps::Split(mapped))
            }
        }
    }
}

/// Name and shape of a linear map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearShape {
    /// Name within the layer, without `.weight`; `*` stands for the number of the expert.
    pub name: &'static str,
    /// Number of the expert whose map it is.
    pub expert: Option<u16>,
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
    /// Factor of the normalized elements.
    pub gain: Gain,
}

/// Factor of the elements of a norm, by its weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gain {
    /// The weight.
    Weight,
    /// One more than the weight.
    OnePlus,
}

/// Layer of a configuration.
pub type LayerShape = Layer<LinearShape, NormShape>;

/// Name of the sinks of a layer's attention.
pub(crate) const SINKS: &str = "self_attn.sinks";

/// Name and dimensions of a tensor.
type NamedShape = (String, Vec<usize>);

impl LinearShape {
    pub(super) fn new(name: &'static str, output: usize, input: usize, bias: bool) -> Self {
        Self { name, expert: None, output, input, bias }
    }

    /// Returns the name within the layer, without `.weight`.
    pub(crate) fn full_name(self) -> String {
        match self.expert {
            None => self.name.to_owned(),
            Some(expert) => self.name.replace('*', &expert.to_string()),
        }
    }

    fn tensors(self) -> impl Iterator<Item = NamedShape> {
        let (name, Self { output, input, bias, .. }) = (self.full_name(), self);
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
        let Self { heads, qkv, o, q_norm, k_norm, sinks, .. } = self;
        let maps = qkv.linears().chain([o]).flat_map(|map| map.tensors());
        let sinks = sinks.then(|| (SINKS.to_owned(), vec![heads.q]));
        maps.chain(q_norm.iter().chain(k_norm).map(|norm| norm.tensor())).chain(sinks)
    }
}

impl LayerShape {
    /// Iterates over the name within the layer and the dimensions of each tensor, in the order of
    /// [`HfConfig::tensors`](super::HfConfig).
    pub fn tensors(&self) -> impl Iterator<Item = NamedShape> {
        let Self { before_attention, attention, after_attention, before_mlp, mlp, after_mlp } =
            self;
        let of = |norm: &Option<NormShape>| norm.map(NormShape::tensor);
        let attention =
            of(before_attention).into_iter().chain(attention.tensors()).chain(of(after_attention));
        attention.chain(of(before_mlp)).chain(mlp.tensors()).chain(of(after_mlp))
    }

    /// Iterates over the norms of the residual stream and of results that are added to it.
    pub(crate) fn stream_norms(&self) -> impl Iterator<Item = &NormShape> {
        let Self { before_attention, after_attention, before_mlp, after_mlp, .. } = self;
        [before_attention, after_attention, before_mlp, after_mlp].into_iter().flatten()
    }
}

impl<L, N> Layer<L, N> {
    /// Iterates over the linear maps that every token passes, in the order of checkpoints: those that adapters correct.
    pub fn linears(&self) -> impl Iterator<Item = &L> {
        let Self { attention, mlp, .. } = self;
        attention.qkv.linears().chain([&attention.o]).chain(mlp.linears())
    }

    /// Iterates over the linear maps that every token passes, in the order of checkpoints.
    pub(crate) fn linears_mut(&mut self) -> impl Iterator<Item = &mut L> {
        let Self { attention, mlp, .. } = self;
        attention.qkv.linears_mut().chain([&mut attention.o]).chain(mlp.linears_mut())
    }

    /// Iterates over the linear maps whose weights products of few rows read in another form: all but those of routers.
    pub fn packed_linears(&self) -> impl Iterator<Item = &L> {
        self.linears().chain(self.mlp.experts().into_iter().flat_map(Experts::linears))
    }

    /// Iterates over the norms.
    pub(crate) fn norms_mut(&mut self) -> impl Iterator<Item = &mut N> {
        let Self { before_attention, attention, after_attention, before_mlp, mlp: _, after_mlp } =
            self;
        let heads = attention.q_norm.iter_mut().chain(&mut attention.k_norm);
        let before = before_attention.iter_mut().chain(before_mlp);
        before.chain(heads).chain(after_attention).chain(after_mlp)
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
        let of = |found: &Option<N>| found.as_ref().map(norm).transpose();
        let Attention { heads, qkv, o, q_norm, k_norm, rope, query_scale, sinks } = &self.attention;
        Ok(Layer {
            before_attention: of(&self.before_attention)?,
            attention: Attention {
                heads: *heads,
                qkv: qkv.try_map(linear)?,
                o: linear(o)?,
                q_norm: of(q_norm)?,
                k_norm: of(k_norm)?,
                rope: *rope,
                query_scale: *query_scale,
                sinks: *sinks,
            },
            after_attention: of(&self.after_attention)?,
            before_mlp: of(&self.before_mlp)?,
            mlp: self.mlp.try_map(linear)?,
            after_mlp: of(&self.after_mlp)?,
        })
    }
}

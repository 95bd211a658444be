//! Parts of a decoder layer.
//!
//! A family of models is a list of layers, and a layer is a struct of parts. The types are written over `L`, which stands
//! for a linear map, `N`, which stands for a norm, and `T`, which stands for another tensor: [`LayerShape`] has their names
//! and shapes, as a configuration describes them, and the decoder has their weights. Loading, saving, adapters, predictions of memory and `maverl inspect`
//! walk the parts, so that they need no change for another family.

mod mixer;
mod mlp;
mod recurrent;

pub use mixer::{Attention, Mixer, QueryScale};
pub use recurrent::{Conv, DeltaNet, ShortConv};

pub(crate) use mlp::ExpertLayout;
pub use mlp::{Activation, Experts, GatedMlp, Mlp, SharedExpert};

/// Layer of a decoder. `x` is the residual stream; a norm that is missing changes nothing:
///
/// ```text
/// m = x + after_mixer(mixer(before_mixer(x)))
/// y = m + after_mlp(mlp(before_mlp(m)))
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Layer<L, N, T> {
    /// Norm of the mixer's input.
    pub before_mixer: Option<N>,
    /// Part through which tokens depend on earlier ones.
    pub mixer: Mixer<L, N, T>,
    /// Norm of the mixer's result.
    pub after_mixer: Option<N>,
    /// Norm of the MLP's input.
    pub before_mlp: Option<N>,
    /// MLP.
    pub mlp: Mlp<L>,
    /// Norm of the MLP's result.
    pub after_mlp: Option<N>,
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
        self.as_slice().iter()
    }

    fn linears_mut(&mut self) -> impl Iterator<Item = &mut L> {
        self.as_mut_slice().iter_mut()
    }

    fn as_slice(&self) -> &[L] {
        match self {
            Self::Split(maps) => maps,
            Self::Fused(map, _) => std::slice::from_ref(map),
        }
    }

    fn as_mut_slice(&mut self) -> &mut [L] {
        match self {
            Self::Split(maps) => maps,
            Self::Fused(map, _) => std::slice::from_mut(map),
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

/// Name and shape of a tensor of another kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorShape {
    /// Name within the layer.
    pub name: &'static str,
    /// Dimensions.
    pub dims: Vec<usize>,
}

/// Layer of a configuration.
pub type LayerShape = Layer<LinearShape, NormShape, TensorShape>;

/// Mixer of a configuration.
pub type MixerShape = Mixer<LinearShape, NormShape, TensorShape>;

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

impl TensorShape {
    fn tensor(&self) -> NamedShape {
        (self.name.to_owned(), self.dims.clone())
    }
}

impl NormShape {
    /// Returns the name and the dimensions of its weight.
    pub(crate) fn tensor(self) -> NamedShape {
        (format!("{}.weight", self.name), vec![self.width])
    }
}

impl LayerShape {
    /// Iterates over the name within the layer and the dimensions of each tensor, in the order of
    /// [`HfConfig::tensors`](super::HfConfig).
    pub fn tensors(&self) -> impl Iterator<Item = NamedShape> {
        let Self { before_mixer, mixer, after_mixer, before_mlp, mlp, after_mlp } = self;
        let of = |norm: &Option<NormShape>| norm.map(NormShape::tensor);
        let mixer = of(before_mixer).into_iter().chain(mixer.tensors()).chain(of(after_mixer));
        mixer.chain(of(before_mlp)).chain(mlp.tensors()).chain(of(after_mlp))
    }

    /// Returns the width of the residual stream.
    pub(crate) fn stream_width(&self) -> usize {
        match &self.mlp {
            Mlp::Gated(mlp) => mlp.down.output,
            Mlp::Experts(experts) => experts.scores.input,
        }
    }

    /// Iterates over the norms of the residual stream and of results that are added to it.
    pub(crate) fn stream_norms(&self) -> impl Iterator<Item = &NormShape> {
        let Self { before_mixer, after_mixer, before_mlp, after_mlp, .. } = self;
        [before_mixer, after_mixer, before_mlp, after_mlp].into_iter().flatten()
    }
}

/// Functions that make the linear maps, norms and other tensors of a layer of those of another.
pub(crate) struct Mapping<'a, L, N, T, M, P, U, E> {
    /// Makes a linear map.
    pub(crate) linear: &'a dyn Fn(&L) -> Result<M, E>,
    /// Makes a norm.
    pub(crate) norm: &'a dyn Fn(&N) -> Result<P, E>,
    /// Makes another tensor.
    pub(crate) other: &'a dyn Fn(&T) -> Result<U, E>,
}

impl<L, N, T, M, P, U, E> Clone for Mapping<'_, L, N, T, M, P, U, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L, N, T, M, P, U, E> Copy for Mapping<'_, L, N, T, M, P, U, E> {}

impl<L, N, T> Layer<L, N, T> {
    /// Iterates over the linear maps that every token passes, in the order of checkpoints.
    pub fn linears(&self) -> impl Iterator<Item = &L> {
        self.mixer.linears().chain(self.mlp.linears())
    }

    /// Iterates over the linear maps that every token passes, in the order of checkpoints.
    pub(crate) fn linears_mut(&mut self) -> impl Iterator<Item = &mut L> {
        self.mixer.linears_mut().chain(self.mlp.linears_mut())
    }

    /// Iterates over the linear maps but those of routers: those whose weights products of few rows read in another form, and
    /// that adapters may correct.
    pub fn packed_linears(&self) -> impl Iterator<Item = &L> {
        self.linears().chain(self.mlp.experts().into_iter().flat_map(Experts::linears))
    }

    /// Iterates over the linear maps of [`Layer::packed_linears`], in the same order.
    pub(crate) fn packed_linears_mut(&mut self) -> impl Iterator<Item = &mut L> {
        self.mixer.linears_mut().chain(self.mlp.packed_linears_mut())
    }

    /// Iterates over the norms.
    pub(crate) fn norms_mut(&mut self) -> impl Iterator<Item = &mut N> {
        let Self { before_mixer, mixer, after_mixer, before_mlp, mlp: _, after_mlp } = self;
        let before = before_mixer.iter_mut().chain(before_mlp);
        before.chain(mixer.norms_mut()).chain(after_mixer).chain(after_mlp)
    }

    /// Builds a layer with other linear maps, norms and tensors.
    ///
    /// # Errors
    ///
    /// The first error of a function.
    pub(crate) fn try_map<M, P, U, E>(
        &self,
        to: Mapping<'_, L, N, T, M, P, U, E>,
    ) -> Result<Layer<M, P, U>, E> {
        let of = |found: &Option<N>| found.as_ref().map(to.norm).transpose();
        Ok(Layer {
            before_mixer: of(&self.before_mixer)?,
            mixer: self.mixer.try_map(to)?,
            after_mixer: of(&self.after_mixer)?,
            before_mlp: of(&self.before_mlp)?,
            mlp: self.mlp.try_map(to.linear)?,
            after_mlp: of(&self.after_mlp)?,
        })
    }
}

//! MLP of a decoder layer: one for all tokens, or experts, of which a router chooses some for each token.

use maverl_kernels::experts::Router;
use maverl_kernels::mlp::ClampedGate;

use super::{LinearShape, Maps, NamedShape};

/// MLP of a layer.
#[derive(Debug, Clone, PartialEq)]
pub enum Mlp<L> {
    /// One MLP for all tokens.
    Gated(GatedMlp<L>),
    /// Experts, of which each token has some.
    Experts(Experts<L>),
}

/// Gated MLP (Shazeer, 2020, arXiv:2002.05202):
///
/// ```text
/// gate, up = gate_up(x)
/// down(activation(gate) * up)
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GatedMlp<L> {
    /// Activation of the gate.
    pub activation: Activation,
    /// Width of gate and up.
    pub width: usize,
    /// Map to the gate, which passes through the activation, and map to what it is multiplied by.
    pub gate_up: Maps<L, 2>,
    /// Map back to the residual stream.
    pub down: L,
}

/// Activation of a gated MLP.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// `x / (1 + e⁻ˣ)`.
    Silu,
    /// GELU, approximated with `tanh`.
    Gelu,
    /// SiLU with bounds; one is added to what the gate is multiplied by.
    Clamped(ClampedGate),
}

/// Mixture of experts (Shazeer et al., 2017, arXiv:1701.06538):
///
/// ```text
/// s = router(x),   e_1 .. e_k = the k largest,   w = softmax of the scores
/// Σ_e w_e expert_e(x)
/// ```
///
/// An expert that every token has may be added ([`SharedExpert`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Experts<L> {
    /// Map to the scores of the experts. Its products are of f32 in every precision.
    pub scores: L,
    /// Choice and weights by the scores.
    pub router: Router,
    /// The experts, which have one shape.
    pub experts: Vec<GatedMlp<L>>,
    /// Expert of every token, if there is one.
    pub shared: Option<SharedExpert<L>>,
}

/// Expert that every token has, with a gate (Qwen2-MoE, arXiv:2407.10671, section 2.2.2; transformers `Qwen2MoeSparseMoeBlock`):
///
/// ```text
/// sigmoid(gate(x)) mlp(x)
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SharedExpert<L> {
    /// Map to the one number of the gate.
    pub gate: L,
    /// The expert.
    pub mlp: GatedMlp<L>,
}

/// Layout of the experts in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpertLayout {
    /// A tensor for each map of each expert.
    Each,
    /// A tensor for gates and ups, and one for downs, as transformers 5 has them in memory.
    Stacked,
    /// The same by inputs: gpt-oss.
    ByInputs,
    /// The same by outputs in blocks of 4-bit numbers: gpt-oss.
    Blocks,
}

impl<L> Mlp<L> {
    /// Returns the MLP of all tokens, if there are no experts.
    pub fn gated(&self) -> Option<&GatedMlp<L>> {
        match self {
            Self::Gated(mlp) => Some(mlp),
            Self::Experts(_) => None,
        }
    }

    /// Returns the experts, if there are any.
    pub fn experts(&self) -> Option<&Experts<L>> {
        match self {
            Self::Gated(_) => None,
            Self::Experts(experts) => Some(experts),
        }
    }

    /// Returns the experts, if there are any.
    pub(crate) fn experts_mut(&mut self) -> Option<&mut Experts<L>> {
        match self {
            Self::Gated(_) => None,
            Self::Experts(experts) => Some(experts),
        }
    }

    /// Iterates over the linear maps that every token passes, in the order of checkpoints: of experts those of the shared one.
    pub(super) fn linears(&self) -> impl Iterator<Item = &L> {
        let (gated, shared) = match self {
            Self::Gated(mlp) => (Some(mlp), None),
            Self::Experts(experts) => (None, experts.shared.as_ref()),
        };
        let shared = shared.into_iter().flat_map(SharedExpert::linears);
        gated.into_iter().flat_map(GatedMlp::linears).chain(shared)
    }

    /// Iterates over the linear maps of [`Mlp::linears`], in the same order.
    pub(super) fn linears_mut(&mut self) -> impl Iterator<Item = &mut L> {
        let (gated, shared) = match self {
            Self::Gated(mlp) => (Some(mlp), None),
            Self::Experts(experts) => (None, experts.shared.as_mut()),
        };
        let shared = shared.into_iter().flat_map(SharedExpert::linears_mut);
        gated.into_iter().flat_map(GatedMlp::linears_mut).chain(shared)
    }

    /// Iterates over the linear maps but those of routers, those that every token passes first.
    pub(super) fn packed_linears_mut(&mut self) -> impl Iterator<Item = &mut L> {
        let (gated, shared, experts) = match self {
            Self::Gated(mlp) => (Some(mlp), None, <&mut [GatedMlp<L>]>::default()),
            Self::Experts(of) => (None, of.shared.as_mut(), &mut of.experts[..]),
        };
        let shared = shared.into_iter().flat_map(SharedExpert::linears_mut);
        let first = gated.into_iter().flat_map(GatedMlp::linears_mut).chain(shared);
        first.chain(experts.iter_mut().flat_map(GatedMlp::linears_mut))
    }

    /// Returns the widths of gates that a token passes, all together.
    pub fn width_of_token(&self) -> usize {
        match self {
            Self::Gated(mlp) => mlp.width,
            Self::Experts(experts) => {
                experts.router.chosen * experts.width() + experts.shared_width()
            }
        }
    }

    pub(super) fn try_map<M, E>(&self, linear: &dyn Fn(&L) -> Result<M, E>) -> Result<Mlp<M>, E> {
        match self {
            Self::Gated(mlp) => Ok(Mlp::Gated(mlp.try_map(linear)?)),
            Self::Experts(Experts { scores, router, experts, shared }) => {
                let experts = experts.iter().map(|expert| expert.try_map(linear));
                let experts = experts.collect::<Result<_, E>>()?;
                let shared = shared.as_ref().map(|shared| shared.try_map(linear)).transpose()?;
                let (scores, router) = (linear(scores)?, *router);
                Ok(Mlp::Experts(Experts { scores, router, experts, shared }))
            }
        }
    }
}

impl<L> GatedMlp<L> {
    /// Iterates over the linear maps, in the order of checkpoints.
    pub(crate) fn linears(&self) -> impl Iterator<Item = &L> {
        self.gate_up.linears().chain([&self.down])
    }

    /// Iterates over the linear maps, in the order of checkpoints.
    pub(crate) fn linears_mut(&mut self) -> impl Iterator<Item = &mut L> {
        self.gate_up.linears_mut().chain([&mut self.down])
    }

    fn try_map<M, E>(&self, linear: &dyn Fn(&L) -> Result<M, E>) -> Result<GatedMlp<M>, E> {
        let Self { activation, width, gate_up, down } = self;
        let (gate_up, down) = (gate_up.try_map(linear)?, linear(down)?);
        Ok(GatedMlp { activation: *activation, width: *width, gate_up, down })
    }
}

impl<L> SharedExpert<L> {
    /// Iterates over the linear maps, in the order of checkpoints.
    fn linears(&self) -> impl Iterator<Item = &L> {
        self.mlp.linears().chain([&self.gate])
    }

    fn linears_mut(&mut self) -> impl Iterator<Item = &mut L> {
        self.mlp.linears_mut().chain([&mut self.gate])
    }

    fn try_map<M, E>(&self, linear: &dyn Fn(&L) -> Result<M, E>) -> Result<SharedExpert<M>, E> {
        Ok(SharedExpert { mlp: self.mlp.try_map(linear)?, gate: linear(&self.gate)? })
    }
}

impl<L> Experts<L> {
    /// Iterates over the linear maps of the experts, in the order of checkpoints.
    pub fn linears(&self) -> impl Iterator<Item = &L> {
        self.experts.iter().flat_map(GatedMlp::linears)
    }

    /// Iterates over the map to scores and the linear maps of the experts.
    pub(crate) fn linears_mut(&mut self) -> impl Iterator<Item = &mut L> {
        [&mut self.scores]
            .into_iter()
            .chain(self.experts.iter_mut().flat_map(GatedMlp::linears_mut))
    }

    /// Returns the width of an expert's gate.
    pub fn width(&self) -> usize {
        self.experts[0].width
    }

    /// Returns the width of the gate of the shared expert; 0 if there is none.
    pub fn shared_width(&self) -> usize {
        self.shared.as_ref().map_or(0, |shared| shared.mlp.width)
    }
}

impl Mlp<LinearShape> {
    /// Iterates over the name and the dimensions of each tensor, in the order of
    /// [`HfConfig::tensors`](crate::files::HfConfig).
    pub fn tensors(&self) -> impl Iterator<Item = NamedShape> {
        let experts = self.experts().into_iter();
        let of_experts = experts.flat_map(|of| [&of.scores].into_iter().chain(of.linears()));
        self.linears().chain(of_experts).flat_map(|map| map.tensors())
    }
}

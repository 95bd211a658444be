//! Operations on a machine of `maverl_kernels::cuda`: a GPU, or the same kernels as C++ on the CPU.
//!
//! Weights, activations, keys and values are bf16; the residual stream and sums are f32.
//!
//! A trained weight is an f32 in two halves: a bf16 number, which products read, and the other 16 bits. Checkpoints are
//! read and written by way of a model in host memory. Losses and heads of critics are computed on the host: log-probs,
//! or the hidden states of predictions, are copied there, and derivatives back.

mod backend;
mod between;
mod decoding;
mod memory;
mod operations;
mod products;

use std::error::Error;
use std::fmt::{self, Debug};
use std::sync::Arc;

use maverl_kernels::attention::{Heads, Scores};
use maverl_kernels::cuda::{
    self, AttentionLayout, BackwardLayout, BlockTables, DeviceArray, DeviceElement,
    EmbeddingLayout, Kernels, Machine, Positions, Slice, SliceMut,
};

pub use backend::DeviceKv;
pub use decoding::DecodingPasses;
pub use memory::Halves;

use super::{Buffer, Done, FROM_HOST, RecurrentOps};
use crate::files::parts::{Activation, Attention, Gain, LayerShape, Maps, Mixer, MixerShape};
use crate::files::{HfConfig, ModelError, ModelErrorKind};
use crate::net::gradients::Gradients;
use crate::net::values::Param;

const _: () = assert!(FROM_HOST == cuda::FROM_HOST, "kernels know which ids the host gives");

/// Machine that models can run on.
pub trait Runner:
    Machine<Error: Error + Send + Sync + 'static> + Clone + Debug + Send + Sync + 'static
{
}

impl<M: Machine<Error: Error + Send + Sync + 'static> + Clone + Debug + Send + Sync + 'static>
    Runner for M
{
}

/// A machine, as the device of a model. Clones share it.
pub struct Device<M: Runner> {
    kernels: Arc<Kernels<M>>,
    /// True if passes of decoding are recorded and replayed.
    graphs: bool,
}

/// Numbers in a machine's memory. The default is an empty one.
pub struct DeviceNumbers<M: Runner, T: DeviceElement>(Option<DeviceArray<M, T>>);

/// Tokens of a pass, or all of them again.
pub enum DevicePlaced<'a, M: Runner> {
    /// Tokens of a pass.
    All(Box<DeviceTokens<M>>),
    /// The same tokens.
    Again(&'a DeviceTokens<M>),
}

/// Tokens of a pass on a machine.
pub struct DeviceTokens<M: Runner> {
    ids: EmbeddingLayout<M>,
    positions: Positions<M>,
    seen: Seen<M>,
}

/// Tokens that attention sees.
enum Seen<M: Runner> {
    Rows(AttentionLayout<M>, BackwardLayout<M>),
    Cached(BlockTables<M>),
}

impl<M: Runner> Clone for Device<M> {
    fn clone(&self) -> Self {
        Self { kernels: Arc::clone(&self.kernels), graphs: self.graphs }
    }
}

impl<M: Runner> Debug for Device<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(self.kernels.machine()).finish()
    }
}

impl<M: Runner, T: DeviceElement> Debug for DeviceNumbers<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Numbers").field(&self.0).finish()
    }
}

impl<M: Runner, T: DeviceElement> Default for DeviceNumbers<M, T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<M: Runner, T: DeviceElement> Buffer for DeviceNumbers<M, T> {
    fn len(&self) -> usize {
        self.0.as_ref().map_or(0, DeviceArray::len)
    }
}

impl<M: Runner, T: DeviceElement> DeviceNumbers<M, T> {
    fn read(&self) -> Done<Slice<'_, T>> {
        self.0.as_ref().map(DeviceArray::as_slice).ok_or_else(empty)
    }

    fn write(&mut self) -> Done<SliceMut<'_, T>> {
        self.0.as_mut().map(DeviceArray::slice_mut).ok_or_else(empty)
    }
}

fn empty() -> ModelError {
    ModelError::new(ModelErrorKind::Device, "an operation reads a buffer that was given away")
}

/// Returns the error of a call that no device can execute.
fn misused_error(what: &str) -> ModelError {
    ModelError::wrong_argument(what)
}

/// Widths of heads that there are kernels for.
const HEAD_DIMS: [usize; 3] = [32, 64, 128];
/// Largest number of query heads of a key head.
const GROUP: usize = 16;

/// Returns the reasons why no device runs models of this shape.
pub fn unsupported_reasons(config: &HfConfig) -> Vec<String> {
    let Heads { q, kv, dim, .. } = config.heads();
    let mut reasons = Vec::new();
    if !HEAD_DIMS.contains(&dim) {
        reasons.push(format!("heads of {dim} numbers, where {HEAD_DIMS:?} are supported"));
    }
    if q / kv.max(1) > GROUP {
        reasons.push(format!("{} query heads of a key head, where {GROUP} are supported", q / kv));
    }
    reasons.extend(unsupported_parts(config).into_iter().map(str::to_owned));
    let widths = config.layers.iter().filter_map(|layer| layer.mlp.gated());
    let widths = widths.map(|mlp| ("an intermediate size", mlp.width));
    let widths = [("a hidden size", config.hidden_size)].into_iter().chain(widths);
    for (what, width) in widths.filter(|(_, width)| !width.is_multiple_of(8)) {
        let reason = format!("{what} of {width}, where a multiple of 8 is needed");
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons
}

/// Returns the parts of a model that no device has kernels for.
fn unsupported_parts(config: &HfConfig) -> Vec<&'static str> {
    let dim = config.heads().dim;
    let partial = config.ropes.iter().any(|rope| rope.rotated_dim(dim) != dim);
    let of_model = [
        (partial, "heads that are rotated in part"),
        (config.embed_scale.is_some(), "a factor of embeddings"),
        (config.head_softcap.is_some(), "a bound of logits"),
    ];
    let mut found: Vec<&str> = Vec::new();
    let parts = config.layers.iter().flat_map(|layer| layer_parts(layer)).chain(of_model);
    for (_, name) in parts.filter(|(there, _)| *there) {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// Returns which parts without kernels a layer has.
fn layer_parts(layer: &LayerShape) -> Vec<(bool, &'static str)> {
    let mut parts = mixer_parts(&layer.mixer);
    let mut norms = layer.stream_norms().chain(layer.mixer.norms());
    parts.extend([
        (norms.any(|norm| norm.gain != Gain::Weight), "norms of `1 + w`"),
        (layer.before_mixer.is_none(), "layers without a norm before them"),
        (layer.after_mixer.is_some(), "norms after attention and MLP"),
        (layer.mlp.gated().is_some_and(|mlp| mlp.activation == Activation::Gelu), "GELU"),
        (layer.mlp.experts().is_some(), "experts"),
    ]);
    parts
}

/// Returns which parts without kernels a mixer has.
fn mixer_parts(mixer: &MixerShape) -> Vec<(bool, &'static str)> {
    let Attention { heads, qkv, q_norm, rope, query_scale, sinks, gate, .. } = match mixer {
        Mixer::Attention(attention) => attention,
        Mixer::DeltaNet(_) => return vec![(true, "Gated DeltaNet")],
        Mixer::ShortConv(_) => return vec![(true, "short convolutions")],
    };
    let Scores { scale, window, softcap } = heads.scores;
    vec![
        (window.is_some(), "a window of attention"),
        (softcap.is_some(), "a bound of scores"),
        (scale.is_some(), "a scale of scores of its own"),
        (rope.is_none(), "layers without rotary positions"),
        (query_scale.is_some(), "queries scaled by positions"),
        (*sinks, "sinks of attention"),
        (q_norm.is_some_and(|norm| norm.width != heads.dim), "norms of all heads together"),
        (matches!(qkv, Maps::Fused(..)), "fused maps"),
        (*gate, "output gates"),
    ]
}

impl<M: Runner> RecurrentOps for Device<M> {}

/// Returns an error if no device runs models of this shape.
fn runs(config: &HfConfig) -> Done<()> {
    match unsupported_reasons(config) {
        reasons if reasons.is_empty() => Ok(()),
        reasons => {
            let what = format!("a model with {} does not run on a device", reasons.join("; "));
            Err(ModelError::no_match(what))
        }
    }
}

impl<M: Runner> Device<M> {
    /// Reads numbers; none from an empty array.
    fn read_numbers<T: DeviceElement>(&self, of: &DeviceNumbers<M, T>) -> Done<Vec<T>> {
        match &of.0 {
            Some(array) => self.kernels.read_array(array).map_err(machine_error),
            None => Ok(Vec::new()),
        }
    }
}

/// Converts an error of a machine.
fn machine_error<E: Error + Send + Sync + 'static>(error: E) -> ModelError {
    ModelError::new(ModelErrorKind::Device, format!("the device failed: {error}"))
        .with_source(error)
}

impl<M: Runner> DevicePlaced<'_, M> {
    fn tokens(&self) -> &DeviceTokens<M> {
        match self {
            Self::All(tokens) => tokens,
            Self::Again(tokens) => tokens,
        }
    }

    fn rows(&self) -> Done<(&AttentionLayout<M>, &BackwardLayout<M>)> {
        match &self.tokens().seen {
            Seen::Rows(forward, back) => Ok((forward, back)),
            Seen::Cached(_) => {
                Err(misused_error("attention of packed rows to the tokens of a cache"))
            }
        }
    }

    fn cached_tables(&self) -> Done<&BlockTables<M>> {
        match &self.tokens().seen {
            Seen::Cached(tables) => Ok(tables),
            Seen::Rows(..) => {
                Err(misused_error("attention to a cache of the tokens of packed rows"))
            }
        }
    }
}

impl<M: Runner> Device<M> {
    /// Creates the device of a machine with the kernels of [`MODEL`](maverl_kernels::cuda::MODEL).
    pub fn new(kernels: Kernels<M>) -> Self {
        Self { kernels: Arc::new(kernels), graphs: true }
    }

    /// Returns the device, on which passes of decoding are recorded and replayed as graphs, or launch their kernels one by
    /// one. Results do not depend on it.
    #[must_use]
    pub fn with_graphs(self, graphs: bool) -> Self {
        Self { graphs, ..self }
    }

    /// Returns the same device, whose arrays are counted apart.
    pub fn fork(&self) -> Self {
        Self { kernels: Arc::new(self.kernels.fork()), graphs: self.graphs }
    }

    /// Returns the kernels.
    pub fn kernels(&self) -> &Kernels<M> {
        &self.kernels
    }

    /// Allocates numbers of arbitrary content.
    fn take<T: DeviceElement>(&self, len: usize) -> Done<DeviceNumbers<M, T>> {
        Ok(DeviceNumbers(Some(self.kernels.new_array(len).map_err(machine_error)?)))
    }

    /// Allocates zeros.
    fn zeros<T: DeviceElement>(&self, len: usize) -> Done<DeviceNumbers<M, T>> {
        Ok(DeviceNumbers(Some(self.kernels.zeroed_array(len).map_err(machine_error)?)))
    }

    fn upload<T: DeviceElement>(&self, host: &[T]) -> Done<DeviceNumbers<M, T>> {
        Ok(DeviceNumbers(Some(self.kernels.array_of(host).map_err(machine_error)?)))
    }
}

/// Calls `f` with a weight.
fn with_weight<M: Runner, R>(
    param: &Param<Device<M>>,
    f: impl FnOnce(Slice<'_, u16>) -> Done<R>,
) -> Done<R> {
    let (weights, place) = param.read();
    f(weights.high.read()?.sub_slice(place))
}

/// Returns the sum of a weight's gradients, if it is trained.
fn sum<'s, M: Runner>(
    sums: &'s mut Gradients<'_, Device<M>>,
    param: &Param<Device<M>>,
) -> Done<Option<SliceMut<'s, f32>>> {
    let Some((sums, place)) = sums.place(param.slot()) else { return Ok(None) };
    Ok(Some(sums.write()?.sub_slice(place)))
}

//! Operations on a machine of `maverl_kernels::cuda`: a GPU, or the same kernels as C++ on the CPU.
//!
//! Weights, activations, keys and values are bf16; the residual stream and sums are f32.

mod operations;
mod products;

use std::error::Error;
use std::fmt::{self, Debug};
use std::sync::Arc;

use maverl_kernels::cuda::{
    AttentionLayout, BackwardLayout, BlockTables, DeviceArray, Element, EmbeddingLayout, Kernels,
    KvShape, Machine, Positions, Slice, SliceMut, from_bf16,
};

use super::{Buffer, Done};
use crate::model::gradients::Gradients;
use crate::model::values::Param;
use crate::model::{HfConfig, ModelError, ModelErrorKind};

/// Machine that models can run on.
pub trait Runner:
    Machine<Error: Error + Send + Sync + 'static> + Debug + Send + Sync + 'static
{
}

impl<M: Machine<Error: Error + Send + Sync + 'static> + Debug + Send + Sync + 'static> Runner
    for M
{
}

/// A machine, as the device of a model. Clones share it.
pub struct Device<M: Runner> {
    kernels: Arc<Kernels<M>>,
}

/// Numbers in a machine's memory. The default is an empty one.
pub struct Numbers<M: Runner, T: Element>(Option<DeviceArray<M, T>>);

/// Tokens of a pass, or all of them again.
pub enum Placed<'a, M: Runner> {
    /// Tokens of a pass.
    All(Box<Tokens<M>>),
    /// The same tokens.
    Again(&'a Tokens<M>),
}

/// Tokens of a pass on a machine.
pub struct Tokens<M: Runner> {
    ids: EmbeddingLayout<M>,
    positions: Positions<M>,
    seen: Seen<M>,
}

/// Tokens that attention sees.
enum Seen<M: Runner> {
    Rows(AttentionLayout<M>, BackwardLayout<M>),
    Cached(BlockTables<M>),
}

/// Blocks of keys and values on a machine.
pub struct DeviceKv<M: Runner> {
    blocks: Numbers<M, u16>,
    shape: KvShape,
}

impl<M: Runner> Clone for Device<M> {
    fn clone(&self) -> Self {
        Self { kernels: Arc::clone(&self.kernels) }
    }
}

impl<M: Runner> Debug for Device<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(self.kernels.machine()).finish()
    }
}

impl<M: Runner, T: Element> Debug for Numbers<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Numbers").field(&self.0).finish()
    }
}

impl<M: Runner> Debug for DeviceKv<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceKv").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl<M: Runner, T: Element> Default for Numbers<M, T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<M: Runner, T: Element> Buffer for Numbers<M, T> {
    fn len(&self) -> usize {
        self.0.as_ref().map_or(0, DeviceArray::len)
    }
}

impl<M: Runner, T: Element> Numbers<M, T> {
    fn read(&self) -> Done<Slice<'_, T>> {
        self.0.as_ref().map(DeviceArray::slice).ok_or_else(empty)
    }

    fn write(&mut self) -> Done<SliceMut<'_, T>> {
        self.0.as_mut().map(DeviceArray::slice_mut).ok_or_else(empty)
    }
}

fn empty() -> ModelError {
    ModelError::new(ModelErrorKind::Device, "an operation reads a buffer that was given away")
}

/// Converts an error of a machine.
fn failed<E: Error + Send + Sync + 'static>(error: E) -> ModelError {
    ModelError::new(ModelErrorKind::Device, format!("the device failed: {error}"))
        .with_source(error)
}

impl<M: Runner> Placed<'_, M> {
    fn tokens(&self) -> &Tokens<M> {
        match self {
            Self::All(tokens) => tokens,
            Self::Again(tokens) => tokens,
        }
    }

    fn rows(&self) -> Done<(&AttentionLayout<M>, &BackwardLayout<M>)> {
        match &self.tokens().seen {
            Seen::Rows(forward, back) => Ok((forward, back)),
            Seen::Cached(_) => Err(ModelError::new(
                ModelErrorKind::Argument,
                "attention of packed rows to the tokens of a cache",
            )),
        }
    }

    fn cached(&self) -> Done<&BlockTables<M>> {
        match &self.tokens().seen {
            Seen::Cached(tables) => Ok(tables),
            Seen::Rows(..) => Err(ModelError::new(
                ModelErrorKind::Argument,
                "attention to a cache of the tokens of packed rows",
            )),
        }
    }
}

impl<M: Runner> Device<M> {
    /// Creates the device of a machine with the kernels of [`MODEL`](maverl_kernels::cuda::MODEL).
    pub fn new(kernels: Kernels<M>) -> Self {
        Self { kernels: Arc::new(kernels) }
    }

    /// Copies activations to the host.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn read(&self, from: &Numbers<M, u16>) -> Done<Vec<f32>> {
        let Some(array) = &from.0 else { return Ok(Vec::new()) };
        Ok(from_bf16(&self.kernels.read(array).map_err(failed)?))
    }

    /// Copies sums to the host.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn read_sums(&self, from: &Numbers<M, f32>) -> Done<Vec<f32>> {
        let Some(array) = &from.0 else { return Ok(Vec::new()) };
        self.kernels.read(array).map_err(failed)
    }

    /// Creates a cache of so many blocks for a model.
    ///
    /// # Errors
    ///
    /// If the device's memory is full.
    pub fn kv(&self, config: &HfConfig, blocks: usize) -> Done<DeviceKv<M>> {
        let HfConfig { num_hidden_layers, num_key_value_heads, head_dim, .. } = *config;
        let shape =
            KvShape { layers: num_hidden_layers, heads: num_key_value_heads, dim: head_dim };
        Ok(DeviceKv { blocks: self.take(blocks * shape.block())?, shape })
    }

    /// Allocates numbers of arbitrary content.
    fn take<T: Element>(&self, len: usize) -> Done<Numbers<M, T>> {
        Ok(Numbers(Some(self.kernels.array(len).map_err(failed)?)))
    }

    fn upload<T: Element>(&self, host: &[T]) -> Done<Numbers<M, T>> {
        Ok(Numbers(Some(self.kernels.array_of(host).map_err(failed)?)))
    }
}

/// Calls `f` with a weight.
fn with<M: Runner, R>(
    param: &Param<Device<M>>,
    f: impl FnOnce(Slice<'_, u16>) -> Done<R>,
) -> Done<R> {
    let (weights, place) = param.read();
    f(weights.read()?.part(place))
}

/// Returns the sum of a weight's gradients, if it is trained.
fn sum<'s, M: Runner>(
    sums: &'s mut Gradients<'_, Device<M>>,
    param: &Param<Device<M>>,
) -> Done<Option<SliceMut<'s, f32>>> {
    let Some((sums, place)) = sums.place(param.slot()) else { return Ok(None) };
    Ok(Some(sums.write()?.part(place)))
}

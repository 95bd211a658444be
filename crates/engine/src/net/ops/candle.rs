//! Operations by candle: compositions of its tensors, forward and backward, without a graph.
//!
//! All numbers are f32, and every result is new memory. Products of candle choose their kernels by shape, so a row agrees with
//! the same row in other company within a bound, not to the bit: K-1 does not hold here.

mod attention;
mod backend;
mod cached;
mod experts;
mod gates;
mod head;
mod linear;
mod matrix;
mod memory;
mod norms;
mod operations;
mod parts;
mod recurrent;
mod rotary;
mod rule;

use candle_core::{Device, Result, Shape, Tensor, WithDType};
use maverl_kernels::attention::{Packing, Segment};

pub use backend::CandleKv;
pub use rotary::CandleAngles;

use super::{Buffer, Done};
use crate::files::{ModelError, ModelErrorKind};
use crate::net::gradients::Gradients;
use crate::net::values::Param;

/// A device of candle. Clones share it.
#[derive(Debug, Clone)]
pub struct Candle {
    device: Device,
}

/// A tensor of candle. The default is empty.
#[derive(Debug, Clone, Default)]
pub struct CandleTensor(Option<Tensor>);

/// Tokens of a pass.
#[derive(Debug)]
pub struct CandlePlaced<'a> {
    ids: Vec<u32>,
    positions: &'a [u32],
    /// Bounds of packed rows; none of cached sequences.
    packing: Packing<'a>,
    /// Cached sequences; none of packed rows.
    segments: &'a [Segment<'a>],
}

impl Candle {
    /// Returns candle's CPU.
    pub fn cpu() -> Self {
        Self { device: Device::Cpu }
    }

    /// Copies numbers to the device.
    fn upload<D: WithDType>(&self, values: Vec<D>, shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::from_vec(values, shape.into(), &self.device)
    }

    /// Copies indices to the device.
    fn indices(&self, of: impl IntoIterator<Item = usize>) -> Result<Tensor> {
        let indices: Vec<u32> = of.into_iter().map(|index| index as u32).collect();
        let len = indices.len();
        self.upload(indices, len)
    }
}

impl Buffer for CandleTensor {
    fn len(&self) -> usize {
        self.0.as_ref().map_or(0, Tensor::elem_count)
    }
}

impl From<Tensor> for CandleTensor {
    fn from(tensor: Tensor) -> Self {
        Self(Some(tensor))
    }
}

impl CandleTensor {
    /// Returns the tensor, of any shape.
    fn get(&self) -> Done<&Tensor> {
        let empty =
            || ModelError::new(ModelErrorKind::Device, "an operation reads an empty buffer");
        self.0.as_ref().ok_or_else(empty)
    }

    /// Returns the numbers as contiguous rows `[N, width]`.
    fn rows(&self, width: usize) -> Done<Tensor> {
        Ok(self.get()?.reshape(((), width))?)
    }
}

/// Returns a weight as it is in the array of the parameters.
fn weight(param: &Param<Candle>) -> Done<Tensor> {
    let (array, place) = param.read();
    Ok(array.narrow(0, place.start, place.len())?.reshape(param.dims())?)
}

/// Adds a gradient to the sum of a weight, if it is trained. `gradient` is called for a trained weight alone.
fn add_gradient(
    sums: &mut Gradients<'_, Candle>,
    param: &Param<Candle>,
    gradient: impl FnOnce() -> Result<Tensor>,
) -> Done<()> {
    let Some((array, place)) = sums.place(param.slot()) else { return Ok(()) };
    let before = array.narrow(0, place.start, place.len())?;
    let sum = (before + gradient()?.flatten_all()?)?;
    Ok(array.slice_set(&sum, 0, place.start)?)
}

/// Adds rows to those of a sum `[N, width]` from one on, in place.
fn add_rows(sum: &Tensor, start: usize, rows: &Tensor) -> Result<()> {
    let added = (sum.narrow(0, start, rows.dim(0)?)? + rows)?;
    sum.slice_set(&added, 0, start)
}

/// Returns rows `[N, width]` one after the other; none are zeros of no rows.
fn join_rows(parts: &[Tensor], width: usize, device: &Device) -> Result<Tensor> {
    match parts {
        [] => Tensor::zeros((0, width), candle_core::DType::F32, device),
        parts => Tensor::cat(parts, 0),
    }
}

/// Errors of candle are those of a device. Its backtrace is left out.
impl From<candle_core::Error> for ModelError {
    fn from(error: candle_core::Error) -> Self {
        let whole = error.to_string();
        let message = format!("candle failed: {}", whole.lines().next().unwrap_or_default());
        Self::new(ModelErrorKind::Device, message).with_source(error)
    }
}

#[cfg(test)]
mod tests;

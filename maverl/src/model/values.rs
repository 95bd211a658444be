//! Numbers of tensors, and weights as a decoder holds them.

use std::ops::{Deref, Range};

use candle_core::{CpuStorage, Device, Layout, Result, Shape, Storage, Tensor, bail};

/// The f32 values of a contiguous tensor's storage.
fn floats(storage: &Storage, layout: &Layout) -> Result<Range<usize>> {
    let Storage::Cpu(CpuStorage::F32(_)) = storage else {
        bail!("an f32 tensor on the CPU is needed")
    };
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(start..end),
        None => bail!("a contiguous tensor is needed, got {layout:?}"),
    }
}

/// Calls `f` with the values of a CPU tensor, copied only if it is not contiguous.
///
/// # Errors
///
/// If the tensor is not f32, or not on the CPU.
pub fn with_values<R>(tensor: &Tensor, f: impl FnOnce(&[f32]) -> R) -> Result<R> {
    let tensor = tensor.contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    let range = floats(&storage, layout)?;
    Ok(f(&Values { storage, range }))
}

/// A tensor over a buffer.
///
/// # Errors
///
/// If the shape has another number of elements.
pub fn tensor(values: Vec<f32>, shape: impl Into<Shape>) -> Result<Tensor> {
    Tensor::from_vec(values, shape.into(), &Device::Cpu)
}

/// A weight: its values, and which of the summed gradients is its own.
#[derive(Debug, Clone)]
pub struct Param {
    tensor: Tensor,
    slot: Option<usize>,
}

impl Param {
    /// A weight over a tensor's storage. `slot` is its place in [`Model::trainable`](crate::model::Model::trainable); a
    /// weight without one is frozen, and its gradient is never built.
    ///
    /// # Errors
    ///
    /// If the tensor is not f32, not contiguous, or not on the CPU.
    pub fn new(tensor: Tensor, slot: Option<usize>) -> Result<Self> {
        let (storage, layout) = tensor.storage_and_layout();
        floats(&storage, layout)?;
        drop(storage);
        Ok(Self { tensor, slot })
    }

    /// Its place among what is trained.
    pub fn slot(&self) -> Option<usize> {
        self.slot
    }

    /// From now on it is not trained.
    pub(super) fn freeze(&mut self) {
        self.slot = None;
    }

    /// The sizes of its dimensions.
    pub fn dims(&self) -> &[usize] {
        self.tensor.dims()
    }

    /// The values that it has now.
    pub fn values(&self) -> impl Deref<Target = [f32]> {
        let (storage, layout) = self.tensor.storage_and_layout();
        let range = floats(&storage, layout).expect("a weight was looked at when it was made");
        Values { storage, range }
    }
}

/// Values of a tensor's storage, which is locked while they are looked at.
struct Values<G> {
    storage: G,
    range: Range<usize>,
}

impl<G: Deref<Target = Storage>> Deref for Values<G> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &*self.storage {
            Storage::Cpu(CpuStorage::F32(values)) => &values[self.range.clone()],
            _ => unreachable!("values are of f32 tensors on the CPU"),
        }
    }
}

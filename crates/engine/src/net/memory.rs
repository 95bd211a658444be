//! The memory of a device: parameters, gradients and moments, and the buffers of passes.

mod buffers;
mod cpu;

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;

use maverl_kernels::adamw::AdamW;
#[cfg(feature = "cuda")]
use maverl_kernels::cuda::{Slice, SliceMut};
use maverl_kernels::muon::Muon;

pub use buffers::Buffers;
pub use cpu::Cpu;

use crate::files::ModelError;

/// Result of an operation: a device may fail, or be out of memory.
pub type Done<T> = Result<T, ModelError>;

/// Numbers in a device's memory. The default is empty.
pub trait Buffer: Debug + Default + Send + Sync {
    /// Returns the number of elements.
    fn len(&self) -> usize;

    /// Returns true if there are no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Buffer for Vec<f32> {
    fn len(&self) -> usize {
        self.len()
    }
}

/// Memory of a device: the types of what it contains, and operations on parameters and sums.
pub trait Memory: Clone + Debug + Send + Sync + Sized + 'static {
    /// Parameters, in one array.
    type Weights: Debug + Send + Sync;
    /// Sums of gradients, or moments, in one array.
    type Sums: Debug + Send + Sync;
    /// Residual stream `[N, D]`, or its gradient.
    type Stream: Buffer;
    /// Activations, or their gradients.
    type Act: Buffer;
    /// Results of attention that only its backward pass reads.
    type Lse: Debug + Default + Send + Sync;
    /// Weight of a linear map in the form for products of few rows.
    type Packed: Debug + Send + Sync;
    /// Angles of rotary positions.
    type Rope: Debug + Send + Sync;
    /// Cache of keys and values.
    type Kv: Debug + Send + Sync;
    /// Buffers that are not in use.
    type Spare: Debug + Default + Send;
    /// Passes of a decoder that the device has recorded.
    type Passes: Debug + Default + Send + Sync;
    /// Tokens that were sampled and may not have been read.
    type Drawn: Debug + Send;

    /// Returns activations to the pool.
    fn give(spare: &mut Self::Spare, buffers: impl IntoIterator<Item = Self::Act>);

    /// Returns residual streams to the pool.
    fn give_streams(spare: &mut Self::Spare, buffers: impl IntoIterator<Item = Self::Stream>);

    /// Copies parameters to the device, as it stores them. Parameters that are not trained may be stored more coarsely.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn weights(&self, values: &[f32], trained: bool) -> Done<Self::Weights>;

    /// Allocates parameters of any values.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn blank(&self, elements: usize, trained: bool) -> Done<Self::Weights>;

    /// Copies parameters on the device.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn copy_weights(&self, of: &Self::Weights, trained: bool) -> Done<Self::Weights>;

    /// Overwrites parameters by as many others.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn assign(&self, to: &mut Self::Weights, values: &[f32]) -> Done<()>;

    /// Reads parameters.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn read_weights<'a>(&self, of: &'a Self::Weights) -> Done<Cow<'a, [f32]>>;

    /// Calls `f` with the parameters in host memory for modification.
    ///
    /// # Errors
    ///
    /// If the device or `f` fails.
    fn update_weights(
        &self,
        of: &mut Self::Weights,
        f: &mut dyn FnMut(&mut [f32]) -> Done<()>,
    ) -> Done<()> {
        let mut values = self.read_weights(of)?.into_owned();
        f(&mut values)?;
        self.assign(of, &values)
    }

    /// Creates zeros for the gradients of so many elements.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn sums(&self, elements: usize) -> Done<Self::Sums>;

    /// Makes an array of sums one of zeros for the next step. Frees it and returns `None` on a device, whose memory other
    /// work needs in between.
    fn reuse(&self, sums: Self::Sums) -> Option<Self::Sums>;

    /// Copies sums to the device.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn sums_of(&self, values: Vec<f32>) -> Done<Self::Sums>;

    /// Reads sums.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn read_sums<'a>(&self, of: &'a Self::Sums) -> Done<Cow<'a, [f32]>>;

    /// Calls `f` with the sums in host memory for modification.
    ///
    /// # Errors
    ///
    /// If the device or `f` fails.
    fn update_sums(
        &self,
        of: &mut Self::Sums,
        f: &mut dyn FnMut(&mut [f32]) -> Done<()>,
    ) -> Done<()>;

    /// Adds sums to those of a place with as many elements.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn add_sums(&self, to: &mut Self::Sums, place: Range<usize>, of: &Self::Sums) -> Done<()> {
        let added = self.read_sums(of)?;
        self.update_sums(to, &mut |all| {
            all[place.clone()].iter_mut().zip(&*added).for_each(|(sum, value)| *sum += value);
            Ok(())
        })
    }

    /// Adds the sums of all processes in their order, in the memory of their devices. A process gets those of its range;
    /// the rest is undefined.
    ///
    /// # Errors
    ///
    /// If the device or the transfer fails, or this is host memory.
    #[cfg(feature = "cuda")]
    fn reduce(&self, _: &dyn Transfer, _of: &mut Self::Sums, _ranges: &[Range<usize>]) -> Done<()> {
        Err(in_host_memory())
    }

    /// Fills the sums of all processes, of which each has those of its range, in the memory of their devices.
    ///
    /// # Errors
    ///
    /// See [`Memory::reduce`].
    #[cfg(feature = "cuda")]
    fn spread_sums(
        &self,
        _: &dyn Transfer,
        _of: &mut Self::Sums,
        _ranges: &[Range<usize>],
    ) -> Done<()> {
        Err(in_host_memory())
    }

    /// Fills the parameters of all processes, of which each has those of its range, in the memory of their devices.
    ///
    /// # Errors
    ///
    /// See [`Memory::reduce`].
    #[cfg(feature = "cuda")]
    fn spread_weights(
        &self,
        _: &dyn Transfer,
        _of: &mut Self::Weights,
        _ranges: &[Range<usize>],
    ) -> Done<()> {
        Err(in_host_memory())
    }

    /// Computes the sum of the squares of a range, which begins at a multiple of [`ALIGN`](crate::net::values::ALIGN). `parts` are
    /// its places that are not 0; the order of the sum may follow them.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn squares(
        &self,
        of: &Self::Sums,
        range: Range<usize>,
        parts: impl Iterator<Item = Range<usize>>,
    ) -> Done<f64>;

    /// Takes a step of AdamW on the parameters of a range: the number of the step, and the factor of the gradients. The
    /// moments are those of the range, which begins at a multiple of [`ALIGN`](crate::net::values::ALIGN). The gradients are
    /// undefined afterwards.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn adamw(
        &self,
        cfg: &AdamW,
        step_and_scale: (u64, f32),
        range: Range<usize>,
        weights_and_gradients: (&mut Self::Weights, &mut Self::Sums),
        moments: [&mut Self::Sums; 2],
    ) -> Done<()>;

    /// Takes a step on all parameters: of Muon on matrices, whose first moment is the momentum, and of AdamW on the other parts.
    /// Returns the sum of the squares of the matrices' updates before the learning rate.
    ///
    /// # Errors
    ///
    /// If the memory is not that of the CPU.
    fn muon(
        &self,
        constants: (&Muon, &AdamW),
        step_and_scale: (u64, f32),
        parts: &[OptimizerPart],
        weights_and_gradients: (&mut Self::Weights, &mut Self::Sums),
        moments: [&mut Self::Sums; 2],
    ) -> Done<f64>;
}

/// Parameters that an optimizer updates together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptimizerPart {
    /// Their places.
    pub range: Range<usize>,
    /// Rows and columns, if they are a matrix that Muon updates.
    pub matrix: Option<(usize, usize)>,
}

/// Transfers of bytes between the memory of the devices of all processes.
#[cfg(feature = "cuda")]
pub trait Transfer: Debug + Send + Sync {
    /// Returns the number of this process, from 0.
    fn rank(&self) -> usize;

    /// Returns the number of processes.
    fn size(&self) -> usize;

    /// Sends bytes to each other process, and receives bytes from each, on a stream
    /// ([`Machine::stream_handle`](maverl_kernels::cuda::Machine::stream_handle)). Both arrays have an element for each
    /// process; that of this one is empty. `done` returns true when the stream has done all that was launched before
    /// its first call.
    ///
    /// # Errors
    ///
    /// If the transfer fails, or `done` does.
    fn exchange(
        &self,
        stream: u64,
        sends: &[Slice<'_, u8>],
        receives: &mut [SliceMut<'_, u8>],
        done: &mut dyn FnMut() -> Done<bool>,
    ) -> Done<()>;
}

#[cfg(feature = "cuda")]
fn in_host_memory() -> ModelError {
    ModelError::wrong_argument("host memory has no transfers between devices")
}

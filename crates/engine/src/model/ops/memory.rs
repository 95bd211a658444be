//! Parameters, gradients and moments in the memory of a device.

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;

use maverl_kernels::adamw::AdamW;
#[cfg(feature = "cuda")]
use maverl_kernels::cuda::{Slice, SliceMut};

use super::Done;
#[cfg(feature = "cuda")]
use crate::model::{ModelError, ModelErrorKind};

/// Arrays of parameters and of sums in the memory of a device.
pub trait Memory: Clone + Debug + Send + Sync + Sized + 'static {
    /// Parameters, in one array.
    type Weights: Debug + Send + Sync;
    /// Sums of gradients, or moments, in one array.
    type Sums: Debug + Send + Sync;

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

    /// Computes the sum of the squares of a range, which begins at a multiple of [`ALIGN`](crate::model::values::ALIGN). `parts` are
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
    /// moments are those of the range, which begins at a multiple of [`ALIGN`](crate::model::values::ALIGN). The gradients are
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
}

/// Transfers of bytes between the memory of the devices of all processes.
#[cfg(feature = "cuda")]
pub trait Transfer: Debug + Send + Sync {
    /// Returns the number of this process, from 0.
    fn rank(&self) -> usize;

    /// Returns the number of processes.
    fn size(&self) -> usize;

    /// Sends bytes to each other process, and receives bytes from each, on a stream
    /// ([`Machine::stream`](maverl_kernels::cuda::Machine::stream)). Both arrays have an element for each process; that of
    /// this one is empty. `done` returns true when the stream has done all that was launched before its first call.
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
    ModelError::new(ModelErrorKind::Argument, "host memory has no transfers between devices")
}

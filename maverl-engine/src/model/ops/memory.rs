//! Parameters, gradients and moments in the memory of a device.

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;

use maverl_kernels::adamw::AdamW;

use super::Done;

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
    ) -> Done<()> {
        let mut values = self.read_sums(of)?.into_owned();
        f(&mut values)?;
        *of = self.sums_of(values)?;
        Ok(())
    }

    /// Computes the sum of all squares. `parts` are the places that are not 0; the order of the sum may follow them.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn squares(&self, of: &Self::Sums, parts: impl Iterator<Item = Range<usize>>) -> Done<f64>;

    /// Takes a step of AdamW on all parameters: the number of the step, and the factor of the gradients. The gradients are
    /// undefined afterwards.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn adamw(
        &self,
        cfg: &AdamW,
        step_and_scale: (u64, f32),
        weights: &mut Self::Weights,
        gradients: &mut Self::Sums,
        moments: [&mut Self::Sums; 2],
    ) -> Done<()>;
}

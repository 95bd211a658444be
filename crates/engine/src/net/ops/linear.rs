//! Linear maps of a device.

use super::{Done, Memory};
use crate::net::gradients::Gradients;
use crate::net::linear::Linear;
use crate::net::pool::Pool;

/// Linear maps, forward and backward. See [`Ops`](super::Ops).
pub trait LinearOps: Memory {
    /// Computes a linear map `[N, O]` of `x [N, I]`, with its bias and its adapter.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn linear(&self, x: &Self::Act, map: &Linear<Self>, pool: &mut Pool<Self>) -> Done<Self::Act>;

    /// Computes [`LinearOps::linear`] of several maps of one input.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn linears<const N: usize>(
        &self,
        x: &Self::Act,
        maps: [&Linear<Self>; N],
        pool: &mut Pool<Self>,
    ) -> Done<[Self::Act; N]> {
        let mut ys = [(); N].map(|()| Self::Act::default());
        for (y, map) in ys.iter_mut().zip(maps) {
            *y = self.linear(x, map, pool)?;
        }
        Ok(ys)
    }

    /// Computes the sum of `onto [N, O]` and a linear map of `x [N, I]`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn linear_onto(
        &self,
        onto: &Self::Stream,
        x: &Self::Act,
        map: &Linear<Self>,
        pool: &mut Pool<Self>,
    ) -> Done<Self::Stream>;

    /// Computes the gradient `[N, I]` of [`LinearOps::linear`] by its input, summed over maps of the same input, each with
    /// the gradient of its result.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn linear_back(
        &self,
        x: &Self::Act,
        maps: &[(&Linear<Self>, &Self::Act)],
        sums: &mut Gradients<'_, Self>,
        pool: &mut Pool<Self>,
    ) -> Done<Self::Act>;

    /// Computes the gradient `[N, I]` of [`LinearOps::linear_onto`] by `x`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn linear_onto_back(
        &self,
        x: &Self::Act,
        map: &Linear<Self>,
        dy: &Self::Stream,
        sums: &mut Gradients<'_, Self>,
        pool: &mut Pool<Self>,
    ) -> Done<Self::Act>;
}

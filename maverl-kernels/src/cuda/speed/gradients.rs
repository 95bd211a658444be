//! Products whose gradients are measured.

use crate::cuda::{Destination, DeviceArray, Kernels, Machine};

/// Arrays of a product `x wᵀ` of a shape `[m, n, k]`, and of its gradients.
pub(super) struct GradientArrays<M: Machine> {
    pub(super) shape: [usize; 3],
    pub(super) x: DeviceArray<M, u16>,
    pub(super) dy: DeviceArray<M, u16>,
    pub(super) w: DeviceArray<M, u16>,
    pub(super) dx: DeviceArray<M, u16>,
    pub(super) dw: DeviceArray<M, f32>,
}

impl<M: Machine> GradientArrays<M> {
    pub(super) fn input_gradient(&mut self, kernels: &Kernels<M>) -> Result<(), M::Error> {
        let ([m, n, k], out) = (self.shape, Destination::Bf16(self.dx.slice_mut()).into());
        kernels.linear_back(self.dy.as_slice(), self.w.as_slice(), [m, k, n], None, out)
    }

    pub(super) fn weight_gradient(&mut self, kernels: &Kernels<M>) -> Result<(), M::Error> {
        let ([m, n, k], out) = (self.shape, Destination::Add(self.dw.slice_mut()).into());
        kernels.linear_back_weight(self.dy.as_slice(), self.x.as_slice(), [n, k, m], out)
    }
}

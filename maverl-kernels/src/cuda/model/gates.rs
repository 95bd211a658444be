//! Gates and columns of activations that only some families have, and bounds of logits.

use super::parts::element_shape;
use crate::cuda::array::{args, expect_length};
use crate::cuda::{Kernels, LaunchShape, Machine, Slice, SliceMut};

impl<M: Machine> Kernels<M> {
    /// Copies `width` columns of the rows of `x`, of `x_columns`, from column `from` on, to those of `y`, of `y_columns`, from
    /// column `to` on.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or columns do not exist.
    pub fn copy_columns(
        &self,
        width: usize,
        (x, x_columns, from): (Slice<'_, u16>, usize, usize),
        (y, y_columns, to): (SliceMut<'_, u16>, usize, usize),
    ) -> Result<(), M::Error> {
        let rows = x.len() / x_columns;
        expect_length("copy_columns", "y", y.len(), rows * y_columns);
        let there = from + width <= x_columns && to + width <= y_columns;
        assert!(there, "copy_columns: {width} of {x_columns} and {y_columns}");
        let args = args![x, rows, width, x_columns, from, y, y_columns, to];
        self.run_model_kernel("copy_columns", LaunchShape::of_threads(rows * width), args)
    }

    /// Computes [`geglu`](crate::mlp::geglu).
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn geglu(
        &self,
        [gate, up]: [Slice<'_, u16>; 2],
        act: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let n = equal_lengths("geglu", [gate.len(), up.len(), act.len()]);
        self.run_model_kernel("geglu", element_shape(n), args![gate, up, n, act])
    }

    /// Computes the gradients of [`Self::geglu`].
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn geglu_back(
        &self,
        [gate, up, dact]: [Slice<'_, u16>; 3],
        [dgate, dup]: [SliceMut<'_, u16>; 2],
    ) -> Result<(), M::Error> {
        let lens = [gate.len(), up.len(), dact.len(), dgate.len(), dup.len()];
        let n = equal_lengths("geglu_back", lens);
        self.run_model_kernel("geglu_back", element_shape(n), args![gate, up, dact, n, dgate, dup])
    }

    /// Multiplies activations by the sigmoid of gates.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn apply_gate(
        &self,
        [x, gate]: [Slice<'_, u16>; 2],
        y: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let n = equal_lengths("apply_gate", [x.len(), gate.len(), y.len()]);
        self.run_model_kernel("apply_gate", element_shape(n), args![x, gate, n, y])
    }

    /// Computes the gradients of [`Self::apply_gate`].
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn apply_gate_back(
        &self,
        [x, gate, dy]: [Slice<'_, u16>; 3],
        [dx, dgate]: [SliceMut<'_, u16>; 2],
    ) -> Result<(), M::Error> {
        let lens = [x.len(), gate.len(), dy.len(), dx.len(), dgate.len()];
        let n = equal_lengths("apply_gate_back", lens);
        let args = args![x, gate, dy, n, dx, dgate];
        self.run_model_kernel("apply_gate_back", element_shape(n), args)
    }

    /// Multiplies activations element by element.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn multiply(
        &self,
        [a, b]: [Slice<'_, u16>; 2],
        y: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let n = equal_lengths("multiply", [a.len(), b.len(), y.len()]);
        self.run_model_kernel("multiply", element_shape(n), args![a, b, n, y])
    }

    /// Computes SiLU.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn silu(&self, x: Slice<'_, u16>, y: SliceMut<'_, u16>) -> Result<(), M::Error> {
        let n = equal_lengths("silu", [x.len(), y.len()]);
        self.run_model_kernel("silu", element_shape(n), args![x, n, y])
    }

    /// Computes the gradient of [`Self::silu`] in place.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn silu_back(&self, x: Slice<'_, u16>, dy: SliceMut<'_, u16>) -> Result<(), M::Error> {
        let n = equal_lengths("silu_back", [x.len(), dy.len()]);
        self.run_model_kernel("silu_back", element_shape(n), args![x, n, dy])
    }

    /// Bounds logits in place: `cap tanh(x / cap)`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn cap_logits(&self, x: SliceMut<'_, f32>, cap: f32) -> Result<(), M::Error> {
        let n = x.len();
        self.run_model_kernel("cap_logits", element_shape(n), args![x, n, cap])
    }

    /// Computes the gradients of [`Self::cap_logits`] in place, from its results.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn cap_logits_back(
        &self,
        capped: Slice<'_, f32>,
        cap: f32,
        dx: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let n = capped.len();
        expect_length("cap_logits_back", "dx", dx.len(), n);
        self.run_model_kernel("cap_logits_back", element_shape(n), args![capped, n, cap, dx])
    }
}

#[track_caller]
fn equal_lengths<const N: usize>(kernel: &str, lens: [usize; N]) -> usize {
    lens.into_iter().for_each(|len| expect_length(kernel, "an array", len, lens[0]));
    lens[0]
}

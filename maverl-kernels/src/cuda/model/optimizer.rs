//! AdamW, sums of squares, and other operations on whole arrays.

use std::cmp::Ordering;

use crate::adamw::{AdamW, Rates};
use crate::cuda::array::{args, expect_length};
use crate::cuda::{Kernels, LaunchShape, Machine, Slice, SliceMut};

/// Numbers of one sum of squares.
const SQUARES: usize = 4096;

/// Weights in f32, in two halves.
#[derive(Debug)]
pub struct Master<'a> {
    /// The weights in bf16, rounded half away from zero.
    pub high: SliceMut<'a, u16>,
    /// Differences of the bits, as `i16`.
    pub low: SliceMut<'a, u16>,
}

impl Master<'_> {
    /// Splits a weight into its halves.
    pub fn split_weight(x: f32) -> [u16; 2] {
        let bits = x.to_bits();
        let high = (bits.wrapping_add(0x8000) >> 16) as u16;
        [high, bits.wrapping_sub(u32::from(high) << 16) as u16]
    }

    /// Joins the halves of a weight.
    pub fn join_weight([high, low]: [u16; 2]) -> f32 {
        f32::from_bits((u32::from(high) << 16).wrapping_add_signed(i32::from(low as i16)))
    }
}

impl<M: Machine> Kernels<M> {
    /// Computes [`adamw_step`](crate::adamw::adamw_step) on a master, and clears the gradients. The bits are those of
    /// the CPU.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ, or `step` is 0: the first step is 1.
    pub fn adamw_step(
        &self,
        cfg: &AdamW,
        step: u64,
        grad_scale: f32,
        master: Master<'_>,
        grad: SliceMut<'_, f32>,
        [m, v]: [SliceMut<'_, f32>; 2],
    ) -> Result<(), M::Error> {
        assert!(step > 0, "adamw: the first step is 1");
        let (Master { high, low }, n) = (master, grad.len());
        let lens = [high.len(), low.len(), m.len(), v.len()];
        assert!(lens.iter().all(|&len| len == n), "adamw: {lens:?} elements, {n} gradients");
        let Rates { keep, beta2, gain1, gain2, correction, eps, rate, scale } =
            cfg.step_rates(step, grad_scale);
        let numbers = args![n, scale, keep, gain1, beta2, gain2, correction, eps, rate];
        let args = [args![high, low, grad, m, v], numbers].concat();
        self.run_model_kernel("adamw", LaunchShape::of_threads(n), &args)
    }

    /// Returns `Σ xᵢ²` in f64, in an order that the length alone decides.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn sum_of_squares(&self, x: Slice<'_, f32>) -> Result<f64, M::Error> {
        if x.is_empty() {
            return Ok(0.0);
        }
        let mut n = x.len().div_ceil(SQUARES);
        let mut sums = self.new_array::<f64>(n)?;
        self.run_model_kernel("squares", LaunchShape::of_blocks(n), args![x, x.len(), sums])?;
        while n > 1 {
            let fewer = n.div_ceil(SQUARES);
            let next = self.new_array::<f64>(fewer)?;
            self.run_model_kernel("sum_f64", LaunchShape::of_blocks(fewer), args![sums, n, next])?;
            (sums, n) = (next, fewer);
        }
        Ok(self.read_array(&sums)?[0])
    }

    /// Adds arrays in order, element by element: `((x_0 + x_1) + x_2) + ..`. The array at the place `own` is `sum`, which
    /// gets the sums; `others` are those at the other places, one after the other, and are undefined afterwards.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the length of `others` is not a multiple of that of `sum`, or that of `sum` not one of 4.
    pub fn sum_in_order(
        &self,
        mut sum: SliceMut<'_, f32>,
        own: usize,
        mut others: SliceMut<'_, f32>,
    ) -> Result<(), M::Error> {
        let n = sum.len();
        if n == 0 {
            return Ok(());
        }
        let count = others.len() / n;
        assert!(own <= count && others.len() == count * n, "sum_in_order: {} of {n}", others.len());
        assert!(n.is_multiple_of(4), "sum_in_order: {n} elements");
        if own == 0 {
            return (0..count).try_for_each(|at| {
                self.axpy(1.0, others.as_slice().sub_slice(at * n..(at + 1) * n), sum.reborrow())
            });
        }
        let (mut first, rest) = others.reborrow().split_at(n);
        for at in 1..=count {
            let x = match at.cmp(&own) {
                Ordering::Less => rest.as_slice().sub_slice((at - 1) * n..at * n),
                Ordering::Equal => sum.as_slice(),
                Ordering::Greater => rest.as_slice().sub_slice((at - 2) * n..(at - 1) * n),
            };
            self.axpy(1.0, x, first.reborrow())?;
        }
        self.run_model_kernel("copy", LaunchShape::of_threads(n / 4), args![first, n / 4, sum])
    }

    /// Adds `by` times `x` to `y`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn axpy(&self, by: f32, x: Slice<'_, f32>, y: SliceMut<'_, f32>) -> Result<(), M::Error> {
        expect_length("axpy", "y", y.len(), x.len());
        self.run_model_kernel("axpy", LaunchShape::of_threads(x.len()), args![x, x.len(), by, y])
    }

    /// Rounds `x` to bf16.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn round_to_bf16(&self, x: Slice<'_, f32>, y: SliceMut<'_, u16>) -> Result<(), M::Error> {
        expect_length("round_to_bf16", "y", y.len(), x.len());
        let shape = LaunchShape::of_threads(x.len().div_ceil(8));
        self.run_model_kernel("round_to_bf16", shape, args![x, x.len(), y])
    }
}

//! The memory of the CPU.

use std::borrow::Cow;
use std::ops::Range;

use maverl_kernels::adamw::{AdamW, adamw_step, sum_of_squares};
use maverl_kernels::large_zeros;
use maverl_kernels::matmul::{PackedWeight, Precision};
use maverl_kernels::rope::RopeTable;
use maverl_kernels::sample::{BadLogits, Sampled};

use super::buffers::Buffers;
use super::{Done, Memory};
use crate::net::kv::KvStore;

/// The CPU: all arrays are f32 in host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// Precision of products with weights.
    pub precision: Precision,
}

impl Default for Cpu {
    fn default() -> Self {
        Self { precision: Precision::F32 }
    }
}

impl Memory for Cpu {
    type Weights = Vec<f32>;
    type Sums = Vec<f32>;
    type Stream = Vec<f32>;
    type Act = Vec<f32>;
    type Lse = ();
    type Packed = PackedWeight;
    type Rope = RopeTable;
    type Kv = KvStore;
    type Spare = Buffers;
    type Passes = ();
    type Drawn = Vec<Result<Sampled, BadLogits>>;

    fn give(spare: &mut Buffers, buffers: impl IntoIterator<Item = Vec<f32>>) {
        spare.give(buffers);
    }

    fn give_streams(spare: &mut Buffers, buffers: impl IntoIterator<Item = Vec<f32>>) {
        spare.give(buffers);
    }

    fn weights(&self, values: &[f32], _: bool) -> Done<Vec<f32>> {
        Ok(values.to_vec())
    }

    fn blank(&self, elements: usize, _: bool) -> Done<Vec<f32>> {
        Ok(large_zeros(elements))
    }

    fn reuse(&self, mut sums: Vec<f32>) -> Option<Vec<f32>> {
        // The system would give a new array page by page, which costs a large model a tenth of its step.
        sums.fill(0.0);
        Some(sums)
    }

    fn copy_weights(&self, of: &Vec<f32>, _: bool) -> Done<Vec<f32>> {
        Ok(of.clone())
    }

    fn assign(&self, to: &mut Vec<f32>, values: &[f32]) -> Done<()> {
        to.copy_from_slice(values);
        Ok(())
    }

    fn read_weights<'a>(&self, of: &'a Vec<f32>) -> Done<Cow<'a, [f32]>> {
        Ok(Cow::Borrowed(of))
    }

    fn update_weights(
        &self,
        of: &mut Vec<f32>,
        f: &mut dyn FnMut(&mut [f32]) -> Done<()>,
    ) -> Done<()> {
        f(of)
    }

    fn sums(&self, elements: usize) -> Done<Vec<f32>> {
        Ok(large_zeros(elements))
    }

    fn sums_of(&self, values: Vec<f32>) -> Done<Vec<f32>> {
        Ok(values)
    }

    fn read_sums<'a>(&self, of: &'a Vec<f32>) -> Done<Cow<'a, [f32]>> {
        Ok(Cow::Borrowed(of))
    }

    fn update_sums(
        &self,
        of: &mut Vec<f32>,
        f: &mut dyn FnMut(&mut [f32]) -> Done<()>,
    ) -> Done<()> {
        f(of)
    }

    fn squares(
        &self,
        of: &Vec<f32>,
        _: Range<usize>,
        parts: impl Iterator<Item = Range<usize>>,
    ) -> Done<f64> {
        // Each part by itself: the order of the sum is part of the result.
        Ok(parts.map(|part| sum_of_squares(&of[part])).sum())
    }

    fn adamw(
        &self,
        cfg: &AdamW,
        (step, scale): (u64, f32),
        range: Range<usize>,
        (weights, gradients): (&mut Vec<f32>, &mut Vec<f32>),
        [m, v]: [&mut Vec<f32>; 2],
    ) -> Done<()> {
        adamw_step(cfg, step, scale, &mut weights[range.clone()], &gradients[range], m, v);
        Ok(())
    }
}

//! Causal convolutions over packed tokens, and behind states of sequences.

use super::elementwise::ROWS_OF_A_SUM;
use crate::attention::Packing;
use crate::cuda::array::{args, expect_length};
use crate::cuda::{DeviceArray, Kernels, LaunchShape, Machine, Slice, SliceMut};

/// Weights of a convolution.
#[derive(Debug, Clone, Copy)]
pub struct ConvInput<'a> {
    /// Weights `[channels, 1, kernel]`.
    pub w: Slice<'a, u16>,
    /// Bias `[channels]`, if there is one.
    pub bias: Option<Slice<'a, u16>>,
    /// Number of tokens that a result depends on.
    pub kernel: usize,
}

impl ConvInput<'_> {
    fn channels(&self) -> usize {
        self.w.len() / self.kernel
    }
}

/// Packed tokens as a convolution of some kernel reads them.
#[derive(Debug)]
pub struct ConvLayout<M: Machine> {
    kernel: usize,
    /// Token before each on its path, or -1.
    before: DeviceArray<M, i32>,
    /// Bounds of the readers of each token, and for each reader its number and its tap.
    starts: DeviceArray<M, u32>,
    readers: DeviceArray<M, i32>,
}

/// New tokens of sequences, as a convolution behind their states reads them.
#[derive(Debug)]
pub struct StateLayout<M: Machine> {
    /// Sequence of each token.
    pub(super) of: DeviceArray<M, u32>,
    /// First token, number of tokens and slot of each sequence.
    pub(super) sequences: DeviceArray<M, i32>,
    /// Largest slot.
    pub(super) most: usize,
}

/// Numbers of a `Sequence` of the source.
pub(super) const SEQUENCE_WORDS: usize = 4;
/// Numbers of a step of a copy.
const STEP: usize = 4;

/// Returns the token before each token of a packing on its path, or -1.
pub fn tokens_before(packing: Packing<'_>) -> Vec<i32> {
    let tokens = packing.offsets.last().copied().unwrap_or(0);
    let mut before: Vec<i32> = (0..tokens).map(|token| token as i32 - 1).collect();
    // Last token on the path that ends with each node.
    let mut ends: Vec<i32> = Vec::with_capacity(packing.offsets.len());
    for (node, bounds) in packing.offsets.windows(2).enumerate() {
        let above = packing.parent_of_node(node).map_or(-1, |parent| ends[parent]);
        if bounds[0] < bounds[1] {
            before[bounds[0]] = above;
        }
        ends.push(if bounds[0] < bounds[1] { bounds[1] as i32 - 1 } else { above });
    }
    before
}

impl<M: Machine> Kernels<M> {
    /// Copies what a convolution of a kernel reads of packed tokens to the machine; `before` is that of [`tokens_before`].
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    pub fn conv_layout(&self, before: &[i32], kernel: usize) -> Result<ConvLayout<M>, M::Error> {
        let mut readers: Vec<[i32; 3]> = Vec::with_capacity(before.len() * kernel);
        for token in 0..before.len() {
            let (mut at, mut tap) = (token as i32, kernel as i32 - 1);
            while at >= 0 && tap >= 0 {
                readers.push([at, token as i32, tap]);
                (at, tap) = (before[at as usize], tap - 1);
            }
        }
        readers.sort_unstable();
        let mut starts = vec![0_u32; before.len() + 1];
        readers.iter().for_each(|[at, ..]| starts[*at as usize + 1] += 1);
        for token in 0..before.len() {
            starts[token + 1] += starts[token];
        }
        let readers: Vec<i32> = readers.iter().flat_map(|[_, token, tap]| [*token, *tap]).collect();
        let (before, starts) = (self.array_of(before)?, self.array_of(&starts)?);
        Ok(ConvLayout { kernel, before, starts, readers: self.array_of(&readers)? })
    }

    /// Copies the new tokens of sequences to the machine: of each their number, and the slot of its states.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    pub fn state_layout(&self, new: &[[usize; 2]]) -> Result<StateLayout<M>, M::Error> {
        let (mut of, mut sequences) = (Vec::new(), Vec::new());
        for (index, &[tokens, slot]) in new.iter().enumerate() {
            sequences.extend([of.len() as i32, tokens as i32, slot as i32, 0]);
            of.extend(std::iter::repeat_n(index as u32, tokens));
        }
        let most = new.iter().map(|[_, slot]| *slot).max().unwrap_or(0);
        Ok(StateLayout { of: self.array_of(&of)?, sequences: self.array_of(&sequences)?, most })
    }

    /// Computes [`causal_conv`](crate::recurrent::causal_conv): `x`, `y` are `[n, channels]`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or the layout is that of another kernel.
    pub fn convolve(
        &self,
        x: Slice<'_, u16>,
        of: ConvInput<'_>,
        at: &ConvLayout<M>,
        y: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let (n, channels) = (at.before.len(), of.channels());
        assert_eq!(at.kernel, of.kernel, "convolve: the kernel of the layout");
        expect_length("convolve", "x", x.len(), n * channels);
        expect_length("convolve", "y", y.len(), n * channels);
        let args = args![x, at.before, of.w, of.bias, n, channels, of.kernel, y];
        self.run_model_kernel("convolve", LaunchShape::of_threads(n * channels), args)
    }

    /// Computes [`causal_conv_bwd`](crate::recurrent::causal_conv_bwd): `dx [n, channels]` is overwritten; the gradient of the
    /// weights is added to `dw`.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or the layout is that of another kernel.
    pub fn convolve_back(
        &self,
        [x, dy]: [Slice<'_, u16>; 2],
        of: ConvInput<'_>,
        at: &ConvLayout<M>,
        dx: SliceMut<'_, u16>,
        dw: Option<SliceMut<'_, f32>>,
    ) -> Result<(), M::Error> {
        let (n, channels, kernel) = (at.before.len(), of.channels(), of.kernel);
        assert_eq!(at.kernel, kernel, "convolve_back: the kernel of the layout");
        for len in [x.len(), dy.len(), dx.len()] {
            expect_length("convolve_back", "an array", len, n * channels);
        }
        let args = args![dy, at.starts, at.readers, of.w, n, channels, kernel, dx];
        self.run_model_kernel("convolve_back", LaunchShape::of_threads(n * channels), args)?;
        let Some(dw) = dw else { return Ok(()) };
        let blocks = n.div_ceil(ROWS_OF_A_SUM);
        let partials = self.new_array::<f32>(blocks * channels * kernel)?;
        let grid = [channels.div_ceil(256) as u32, blocks as u32, 1];
        let shape = LaunchShape { grid, ..LaunchShape::of_blocks(0) };
        let args = args![x, dy, at.before, n, channels, kernel, partials];
        self.run_model_kernel("convolve_weights_back", shape, args)?;
        self.add_rows(partials, blocks, channels * kernel, dw)
    }

    /// Computes [`causal_conv_onto`](crate::recurrent::causal_conv_onto) of new tokens: `x`, `y` are `[n, channels]`. `states` are
    /// slots of `stride` numbers, of which the inputs before begin at `start`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or a slot does not exist.
    pub fn convolve_cached(
        &self,
        x: Slice<'_, u16>,
        of: ConvInput<'_>,
        at: &StateLayout<M>,
        (states, stride, start): (SliceMut<'_, f32>, usize, usize),
        y: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let (n, channels, kernel) = (at.of.len(), of.channels(), of.kernel);
        expect_length("convolve_cached", "x", x.len(), n * channels);
        expect_length("convolve_cached", "y", y.len(), n * channels);
        let past = start + (kernel - 1) * channels;
        let fit = past <= stride && (at.most + 1) * stride <= states.len();
        assert!(fit, "convolve_cached: slot {} of {} numbers", at.most, states.len());
        let (len, count) = (states.len(), at.sequences.len() / SEQUENCE_WORDS);
        let own = states.sub_slice(start..len);
        let args =
            args![x, at.of, at.sequences, own, stride, of.w, of.bias, n, channels, kernel, y];
        self.run_model_kernel("convolve_cached", LaunchShape::of_threads(n * channels), args)?;
        let args = args![x, at.sequences, count, channels, kernel, own, stride];
        self.run_model_kernel("advance_past", LaunchShape::of_threads(count * channels), args)
    }

    /// Copies the states of one slot of `stride` numbers to another.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If a slot does not exist, both are one, or the stride is no multiple of 4.
    pub fn copy_slot(
        &self,
        states: SliceMut<'_, f32>,
        [from, to]: [usize; 2],
        stride: usize,
    ) -> Result<(), M::Error> {
        let there = (from.max(to) + 1) * stride <= states.len();
        assert!(from != to && there, "copy_slot: {from} to {to} of {} numbers", states.len());
        let part = |slot: usize| states.as_slice().sub_slice(slot * stride..(slot + 1) * stride);
        self.copy_states(part(from), part(to))
    }

    /// Copies states to the front of a larger array of zeros.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the array is smaller, or the length is no multiple of 4.
    pub fn grow_states(&self, x: Slice<'_, f32>, y: SliceMut<'_, f32>) -> Result<(), M::Error> {
        let (len, room) = (x.len(), y.len());
        assert!(len <= room, "grow_states: {len} numbers to {room}");
        self.copy_states(x, y.as_slice().sub_slice(0..len))
    }

    fn copy_states(&self, x: Slice<'_, f32>, y: Slice<'_, f32>) -> Result<(), M::Error> {
        let n = x.len();
        assert!(n.is_multiple_of(STEP), "states of {n} numbers");
        self.run_model_kernel("copy", LaunchShape::of_threads(n / STEP), args![x, n / STEP, y])
    }
}

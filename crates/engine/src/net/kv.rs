//! Key-value cache in blocks of a few tokens, so that sequences can share a prefix, and states of recurrent layers in slots,
//! one for each sequence. A block has two parts: keys and values of layers whose attention sees all earlier tokens, and those
//! of layers with a window, which can be taken from a block that no window reaches any more (`windows`).
#![allow(unsafe_code)] // threads append to different sequences of one store

mod windows;

use std::sync::{Mutex, PoisonError};

use maverl_kernels::attention::{BLOCK_TOKENS, CacheBlock, CacheBlocks, Segment};

use crate::files::HfConfig;
use crate::files::parts::{Mixer, MixerShape};

/// Blocks of keys and values of a decoder's layers, and slots of states. Ownership of both is not tracked here.
///
/// A block holds [`KvStore::TOKENS`] tokens: in its part, for each layer with attention, keys `[Hkv * head_dim, TOKENS]`, then values
/// `[TOKENS, Hkv * head_dim]`. A slot holds for each recurrent layer the last inputs of its convolution,
/// `[kernel - 1, channels]`, then its state.
#[derive(Debug)]
pub struct KvStore {
    /// Parts of the layers without a window, by the numbers of blocks.
    blocks: Vec<CacheBlock>,
    /// Parts of the layers with a window, by the numbers of blocks; empty where they were taken.
    windows: Vec<CacheBlock>,
    /// Parts that were taken.
    spare: Vec<CacheBlock>,
    /// Numbers of layers with attention, without a window and with one.
    layers: [usize; 2],
    /// Elements of a token's keys, or values, in a layer.
    width: usize,
    slots: Vec<Mutex<Vec<f32>>>,
    /// Place of each layer.
    places: Vec<Place>,
}

/// Place of a layer in blocks or slots.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Index among the layers with attention, of those without a window or of those with one.
    Block { windowed: bool, index: usize },
    /// First element in a slot, inputs of the convolution, and elements of the state.
    Slot { start: usize, past: usize, state: usize },
}

impl Place {
    /// Returns true for a layer with attention that has a window, or has none.
    fn has(&self, window: bool) -> bool {
        matches!(self, Self::Block { windowed, .. } if *windowed == window)
    }

    /// Returns the end of a place in a slot.
    fn slot_end(&self) -> Option<usize> {
        match *self {
            Self::Block { .. } => None,
            Self::Slot { start, past, state } => Some(start + past + state),
        }
    }
}

/// Returns the place of each layer.
fn place_layers(config: &HfConfig) -> Vec<Place> {
    let (mut layers, mut start, evicts) = ([0; 2], 0, config.evicted_window().is_some());
    let places = config.layers.iter().map(|layer| match layer.mixer.state_numbers() {
        None => {
            let windowed = evicts && layer.window().is_some();
            let count = &mut layers[usize::from(windowed)];
            *count += 1;
            Place::Block { windowed, index: *count - 1 }
        }
        Some([past, state]) => {
            let place = Place::Slot { start, past, state };
            start += past + state;
            place
        }
    });
    places.collect()
}

impl MixerShape {
    /// Returns the numbers that a sequence keeps for a recurrent mixer: inputs of its convolution, and its state.
    pub fn state_numbers(&self) -> Option<[usize; 2]> {
        let (conv, state) = match self {
            Mixer::Attention(_) => return None,
            Mixer::DeltaNet(net) => (&net.conv, net.heads.state_len()),
            Mixer::ShortConv(net) => (&net.conv, 0),
        };
        Some([(conv.kernel - 1) * conv.weight.dims[0], state])
    }
}

impl KvStore {
    /// Number of tokens in a block.
    pub const TOKENS: usize = BLOCK_TOKENS;

    /// Creates an empty store for sequences of one model.
    pub fn new(config: &HfConfig) -> Self {
        let (heads, places) = (config.heads(), place_layers(config));
        let layers =
            [false, true].map(|with| places.iter().filter(|place| place.has(with)).count());
        let (width, blocks, windows) = (heads.kv * heads.dim, Vec::new(), Vec::new());
        Self { blocks, windows, spare: Vec::new(), layers, width, slots: Vec::new(), places }
    }

    /// Returns the bytes of a slot of states; 0 if no layer is recurrent.
    pub fn slot_bytes(&self) -> usize {
        self.slot() * size_of::<f32>()
    }

    /// Adds a slot of states, all zeros, and returns its number; numbers count up from 0.
    pub fn add_slot(&mut self) -> u32 {
        self.slots.push(Mutex::new(vec![0.0; self.slot()]));
        self.slots.len() as u32 - 1
    }

    /// Sets the states of a slot to zeros, those before the first token.
    ///
    /// # Panics
    ///
    /// If it does not exist.
    pub fn reset_slot(&mut self, slot: u32) {
        let slot = self.slots[slot as usize].get_mut();
        slot.unwrap_or_else(PoisonError::into_inner).fill(0.0);
    }

    /// Copies the states of one slot to another.
    ///
    /// # Panics
    ///
    /// If they are the same slot, or one does not exist.
    pub fn copy_slot(&mut self, from: u32, to: u32) {
        let slots = self.slots.get_disjoint_mut([from as usize, to as usize]);
        let [from, to] = slots.expect("two slots of this store");
        let from = from.get_mut().unwrap_or_else(PoisonError::into_inner);
        maverl_kernels::copy_numbers(from, to.get_mut().unwrap_or_else(PoisonError::into_inner));
    }

    /// Calls `f` with the inputs of the convolution and the state of a layer in a slot.
    pub(super) fn with_state<R>(
        &self,
        slot: u32,
        layer: usize,
        f: impl FnOnce(&mut [f32], &mut [f32]) -> R,
    ) -> R {
        let Place::Slot { start, past, state } = self.places[layer] else {
            unreachable!("layer {layer} has no state")
        };
        let mut slot = self.slots[slot as usize].lock().unwrap_or_else(PoisonError::into_inner);
        let (inputs, rest) = slot[start..].split_at_mut(past);
        f(inputs, &mut rest[..state])
    }

    /// Returns the bytes of a block with both parts.
    pub fn block_bytes(&self) -> usize {
        self.numbers().into_iter().sum::<usize>() * size_of::<f32>()
    }

    /// Returns the bytes of a block's part of the layers with a window; 0 if there are none.
    pub fn window_bytes(&self) -> usize {
        self.numbers()[1] * size_of::<f32>()
    }

    /// Returns the number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns true if there is no block.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds a block and returns its number; numbers count up from 0.
    pub fn add(&mut self) -> u32 {
        let [numbers, _] = self.numbers();
        self.blocks.push(CacheBlock::new(numbers));
        self.windows.push(CacheBlock::default());
        let block = self.blocks.len() as u32 - 1;
        self.fill_window(block);
        block
    }

    /// Frees every block and every slot.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.windows.clear();
        self.spare.clear();
        self.slots.clear();
    }

    /// Copies the first tokens of one block to another.
    ///
    /// # Panics
    ///
    /// If they are the same block, or one does not exist.
    pub fn copy(&mut self, from: u32, to: u32, tokens: usize) {
        let (part, width) = (self.part(), self.width);
        for parts in [&mut self.blocks, &mut self.windows] {
            let two = parts.get_disjoint_mut([from as usize, to as usize]);
            let [from, to] = two.expect("two blocks of this store");
            let (from, to) = (from.read(), to.get_mut());
            for (from, to) in from.chunks_exact(2 * part).zip(to.chunks_exact_mut(2 * part)) {
                let (keys, values) = to.split_at_mut(part);
                let lines =
                    keys.chunks_exact_mut(Self::TOKENS).zip(from.chunks_exact(Self::TOKENS));
                lines.for_each(|(to, from)| to[..tokens].copy_from_slice(&from[..tokens]));
                values[..tokens * width].copy_from_slice(&from[part..][..tokens * width]);
            }
        }
    }

    /// Returns the blocks for attention in one layer.
    pub(super) fn layer(&self, layer: usize) -> CacheBlocks<'_> {
        let (storage, index) = self.layer_parts(layer);
        let keys = 2 * index * self.part();
        CacheBlocks { storage, keys, values: keys + self.part() }
    }

    /// Writes a layer's new keys and values `[N, width]` to the end of each segment.
    ///
    /// # Safety
    ///
    /// Meanwhile, nobody else reads or writes the blocks that receive tokens.
    pub(super) unsafe fn append(
        &self,
        layer: usize,
        k: &[f32],
        v: &[f32],
        segments: &[Segment<'_>],
    ) {
        let (width, part, (parts, layer)) = (self.width, self.part(), self.layer_parts(layer));
        let mut done = 0;
        for segment in segments {
            let mut position = segment.len - segment.new_tokens;
            while position < segment.len {
                let (index, row) = (position / Self::TOKENS, position % Self::TOKENS);
                let rows = (Self::TOKENS - row).min(segment.len - position);
                let new = done * width..(done + rows) * width;
                // SAFETY: guaranteed by the caller.
                let block = unsafe { parts[segment.blocks[index] as usize].write() };
                let (keys, values) = block[2 * layer * part..].split_at_mut(part);
                for (token, k) in (row..).zip(k[new.clone()].chunks_exact(width)) {
                    let lines = keys.as_chunks_mut::<{ Self::TOKENS }>().0;
                    lines.iter_mut().zip(k).for_each(|(line, k)| line[token] = *k);
                }
                values[row * width..(row + rows) * width].copy_from_slice(&v[new]);
                (done, position) = (done + rows, position + rows);
            }
        }
    }

    /// Returns the number of elements of a layer's keys, or values, in a block.
    fn part(&self) -> usize {
        Self::TOKENS * self.width
    }

    /// Returns the numbers of elements of a block's two parts.
    fn numbers(&self) -> [usize; 2] {
        self.layers.map(|layers| 2 * layers * self.part())
    }

    /// Returns the number of elements of a slot.
    fn slot(&self) -> usize {
        self.places.iter().rev().find_map(Place::slot_end).unwrap_or(0)
    }

    /// Returns the parts of blocks that a layer is in, and its index there.
    fn layer_parts(&self, layer: usize) -> (&[CacheBlock], usize) {
        match self.places[layer] {
            Place::Block { windowed: false, index } => (&self.blocks, index),
            Place::Block { windowed: true, index } => (&self.windows, index),
            Place::Slot { .. } => unreachable!("layer {layer} has no keys and values"),
        }
    }
}

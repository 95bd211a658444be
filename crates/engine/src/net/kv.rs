//! Key-value cache in blocks of a few tokens, so that sequences can share a prefix, and states of recurrent layers in slots,
//! one for each sequence.
#![allow(unsafe_code)] // threads append to different sequences of one store

use std::sync::{Mutex, PoisonError};

use maverl_kernels::attention::{BLOCK_TOKENS, CacheBlock, CacheBlocks, Segment};

use crate::files::HfConfig;
use crate::files::parts::{Mixer, MixerShape};

/// Blocks of keys and values of a decoder's layers, and slots of states. Ownership of both is not tracked here.
///
/// A block holds [`KvStore::TOKENS`] tokens: for each layer with attention keys `[Hkv * head_dim, TOKENS]`, then values
/// `[TOKENS, Hkv * head_dim]`. A slot holds for each recurrent layer the last inputs of its convolution,
/// `[kernel - 1, channels]`, then its state.
#[derive(Debug)]
pub struct KvStore {
    blocks: Vec<CacheBlock>,
    /// Number of layers with attention.
    layers: usize,
    /// Elements of a token's keys, or values, in a layer.
    width: usize,
    slots: Vec<Mutex<Vec<f32>>>,
    /// Place of each layer.
    places: Vec<Place>,
}

/// Place of a layer in blocks or slots.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Index among the layers with attention.
    Block(usize),
    /// First element in a slot, inputs of the convolution, and elements of the state.
    Slot { start: usize, past: usize, state: usize },
}

impl Place {
    /// Returns the end of a place in a slot.
    fn slot_end(&self) -> Option<usize> {
        match *self {
            Self::Block(_) => None,
            Self::Slot { start, past, state } => Some(start + past + state),
        }
    }
}

/// Returns the place of each layer.
fn place_layers(config: &HfConfig) -> Vec<Place> {
    let (mut layers, mut start) = (0, 0);
    let places = config.layers.iter().map(|layer| match layer.mixer.state_numbers() {
        None => {
            layers += 1;
            Place::Block(layers - 1)
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
        let layers = places.iter().filter(|place| matches!(place, Place::Block(_))).count();
        let width = heads.kv * heads.dim;
        Self { blocks: Vec::new(), layers, width, slots: Vec::new(), places }
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

    /// Returns the bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.block() * size_of::<f32>()
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
        self.blocks.push(CacheBlock::new(self.block()));
        self.blocks.len() as u32 - 1
    }

    /// Frees every block and every slot.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.slots.clear();
    }

    /// Copies the first tokens of one block to another.
    ///
    /// # Panics
    ///
    /// If they are the same block, or one does not exist.
    pub fn copy(&mut self, from: u32, to: u32, tokens: usize) {
        let (part, width) = (self.part(), self.width);
        let [from, to] = self
            .blocks
            .get_disjoint_mut([from as usize, to as usize])
            .expect("two blocks of this store");
        let (from, to) = (from.read(), to.get_mut());
        for (from, to) in from.chunks_exact(2 * part).zip(to.chunks_exact_mut(2 * part)) {
            let (keys, values) = to.split_at_mut(part);
            let lines = keys.chunks_exact_mut(Self::TOKENS).zip(from.chunks_exact(Self::TOKENS));
            lines.for_each(|(to, from)| to[..tokens].copy_from_slice(&from[..tokens]));
            values[..tokens * width].copy_from_slice(&from[part..][..tokens * width]);
        }
    }

    /// Returns the blocks for attention in one layer.
    pub(super) fn layer(&self, layer: usize) -> CacheBlocks<'_> {
        let keys = 2 * self.block_layer(layer) * self.part();
        CacheBlocks { storage: &self.blocks, keys, values: keys + self.part() }
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
        let (width, part, layer) = (self.width, self.part(), self.block_layer(layer));
        let mut done = 0;
        for segment in segments {
            let mut position = segment.len - segment.new_tokens;
            while position < segment.len {
                let (index, row) = (position / Self::TOKENS, position % Self::TOKENS);
                let rows = (Self::TOKENS - row).min(segment.len - position);
                let new = done * width..(done + rows) * width;
                // SAFETY: guaranteed by the caller.
                let block = unsafe { self.blocks[segment.blocks[index] as usize].write() };
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

    /// Returns the number of elements of a block.
    fn block(&self) -> usize {
        2 * self.layers * self.part()
    }

    /// Returns the number of elements of a slot.
    fn slot(&self) -> usize {
        self.places.iter().rev().find_map(Place::slot_end).unwrap_or(0)
    }

    /// Returns the index of a layer among those with attention.
    fn block_layer(&self, layer: usize) -> usize {
        match self.places[layer] {
            Place::Block(index) => index,
            Place::Slot { .. } => unreachable!("layer {layer} has no keys and values"),
        }
    }
}

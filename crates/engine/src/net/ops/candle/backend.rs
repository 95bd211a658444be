//! Candle as a device on which models generate and are trained.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use candle_core::{DType, Tensor};
use maverl_kernels::attention::BLOCK_TOKENS;
use maverl_kernels::sample::{BadLogits, Sampled, TokenDraw};
use rayon::prelude::*;

use super::head::read;
use super::{Candle, CandleTensor};
use crate::files::parts::{Mixer, MixerShape};
use crate::files::{HfConfig, ModelError, ModelErrorKind};
use crate::net::Model;
use crate::net::linear::OutputHead;
use crate::net::ops::{Backend, Buffer, Done, KvCache, TokenChoice};
use crate::net::pool::Pool;

/// Blocks of the first allocation of a cache.
const FIRST_BLOCKS: usize = 16;

/// Blocks of keys and values, and slots of states. Arrays are replaced by larger ones where they are full.
#[derive(Debug)]
pub struct CandleKv {
    /// Keys and values of each layer with attention, `[places, K d]` each, where there are blocks.
    layers: Vec<Option<[Tensor; 2]>>,
    /// Elements of a token's keys, or values, in a layer.
    width: usize,
    count: usize,
    room: usize,
    most: usize,
    /// Inputs of the convolution and state of each recurrent layer, of each slot.
    slots: Vec<Mutex<Vec<[Tensor; 2]>>>,
    /// Place of each recurrent layer in a slot, with the dimensions of its inputs and of its state.
    states: Vec<Option<CandleStatePlace>>,
}

/// Place of a recurrent layer in a slot.
#[derive(Debug, Clone)]
struct CandleStatePlace {
    index: usize,
    past: (usize, usize),
    state: (usize, usize, usize),
}

impl CandleStatePlace {
    fn of(mixer: &MixerShape, index: usize) -> Option<Self> {
        let (conv, state) = match mixer {
            Mixer::Attention(_) => return None,
            Mixer::DeltaNet(net) => {
                (&net.conv, (net.heads.values, net.heads.key_dim, net.heads.value_dim))
            }
            Mixer::ShortConv(net) => (&net.conv, (0, 0, 0)),
        };
        Some(Self { index, past: (conv.kernel - 1, conv.weight.dims[0]), state })
    }

    fn numbers(&self) -> usize {
        let (rows, channels) = self.past;
        let (heads, keys, values) = self.state;
        rows * channels + heads * keys * values
    }

    fn zeros(&self, ops: &Candle) -> candle_core::Result<[Tensor; 2]> {
        let past = Tensor::zeros(self.past, DType::F32, &ops.device)?;
        Ok([past, Tensor::zeros(self.state, DType::F32, &ops.device)?])
    }
}

/// Returns the places of recurrent layers in a slot.
fn state_places(config: &HfConfig) -> Vec<Option<CandleStatePlace>> {
    let mut count = 0;
    let places = config.layers.iter().map(|layer| {
        let place = CandleStatePlace::of(&layer.mixer, count);
        count += usize::from(place.is_some());
        place
    });
    places.collect()
}

impl CandleKv {
    /// Returns keys and values of a layer, `[places, K d]` each.
    pub(super) fn layer(&self, layer: usize) -> Done<&[Tensor; 2]> {
        let none = || ModelError::new(ModelErrorKind::Device, "a layer without keys and values");
        self.layers[layer].as_ref().ok_or_else(none)
    }

    /// Calls `f` with the inputs of the convolution and the state of a layer in a slot.
    pub(super) fn with_state(
        &self,
        slot: u32,
        layer: usize,
        f: impl FnOnce(&mut [Tensor; 2]) -> candle_core::Result<()>,
    ) -> Done<()> {
        let Some(CandleStatePlace { index, .. }) = self.states[layer] else {
            unreachable!("layer {layer} has no state")
        };
        let mut slot = self.slots[slot as usize].lock().unwrap_or_else(PoisonError::into_inner);
        Ok(f(&mut slot[index])?)
    }

    /// Iterates over the states of recurrent layers.
    fn places(&self) -> impl Iterator<Item = &CandleStatePlace> {
        self.states.iter().flatten()
    }
}

impl KvCache for CandleKv {
    fn count(&self) -> usize {
        self.count
    }

    fn clear(&mut self) {
        self.layers.iter_mut().for_each(|layer| *layer = None);
        self.slots.clear();
        (self.count, self.room) = (0, 0);
    }
}

impl Candle {
    /// Makes room for more blocks.
    fn grow(&self, kv: &mut CandleKv) -> Done<()> {
        let room = (2 * kv.room).max(FIRST_BLOCKS).min(kv.most).max(kv.room + 1);
        for (layer, state) in kv.layers.iter_mut().zip(&kv.states) {
            if state.is_some() {
                continue;
            }
            let dims = (room * BLOCK_TOKENS, kv.width);
            let zeros = || Tensor::zeros(dims, DType::F32, &self.device);
            let new = [zeros()?, zeros()?];
            if let Some(old) = layer.take() {
                new.iter().zip(&old).try_for_each(|(new, old)| new.slice_set(old, 0, 0))?;
            }
            *layer = Some(new);
        }
        kv.room = room;
        Ok(())
    }
}

impl Backend for Candle {
    fn load(&self, host: Model, trained: bool) -> Done<Model<Self>> {
        host.on(self, trained)
    }

    fn host(&self, model: &Model<Self>) -> Done<Model> {
        model.to_host(self)
    }

    fn store(&self, host: &Model, model: &Model<Self>) -> Done<()> {
        model.trainable().assign(self, host.trainable())
    }

    fn block_bytes(&self, config: &HfConfig) -> usize {
        let (heads, attending) = (config.heads(), config.layers.iter());
        let attending = attending.filter(|layer| layer.mixer.attention().is_some()).count();
        2 * attending * heads.kv * heads.dim * BLOCK_TOKENS * size_of::<f32>()
    }

    fn kv(&self, config: &HfConfig, most: usize) -> CandleKv {
        let (heads, states) = (config.heads(), state_places(config));
        let (layers, width) = (vec![None; states.len()], heads.kv * heads.dim);
        CandleKv { layers, width, count: 0, room: 0, most, slots: Vec::new(), states }
    }

    fn add_block(&self, kv: &mut CandleKv) -> Done<u32> {
        if kv.count == kv.room {
            self.grow(kv)?;
        }
        kv.count += 1;
        Ok(kv.count as u32 - 1)
    }

    fn slot_bytes(&self, config: &HfConfig) -> usize {
        let numbers =
            state_places(config).iter().flatten().map(CandleStatePlace::numbers).sum::<usize>();
        numbers * size_of::<f32>()
    }

    fn add_slot(&self, kv: &mut CandleKv) -> Done<u32> {
        let zeros = kv.places().map(|place| place.zeros(self));
        let zeros = zeros.collect::<candle_core::Result<_>>()?;
        kv.slots.push(Mutex::new(zeros));
        Ok(kv.slots.len() as u32 - 1)
    }

    fn reset_slot(&self, kv: &mut CandleKv, slot: u32) -> Done<()> {
        let zeros = kv.places().map(|place| place.zeros(self));
        let zeros = zeros.collect::<candle_core::Result<_>>()?;
        kv.slots[slot as usize] = Mutex::new(zeros);
        Ok(())
    }

    fn copy_slot(&self, kv: &mut CandleKv, [from, to]: [u32; 2]) -> Done<()> {
        // States are replaced, never written in place.
        let from = kv.slots[from as usize].get_mut();
        let states = from.unwrap_or_else(PoisonError::into_inner).clone();
        kv.slots[to as usize] = Mutex::new(states);
        Ok(())
    }

    fn copy_block(&self, kv: &mut CandleKv, [from, to]: [u32; 2], tokens: usize) -> Done<()> {
        let [from, to] = [from, to].map(|block| block as usize * BLOCK_TOKENS);
        for array in kv.layers.iter().flatten().flatten() {
            let rows = array.narrow(0, from, tokens)?.force_contiguous()?;
            array.slice_set(&rows, 0, to)?;
        }
        Ok(())
    }

    fn pick(&self, act: &CandleTensor, width: usize, rows: &[u32]) -> Done<CandleTensor> {
        let at = self.upload(rows.to_vec(), rows.len())?;
        Ok(act.rows(width)?.index_select(&at, 0)?.into())
    }

    fn spread(&self, dpicked: &CandleTensor, rows: &[u32], n: usize) -> Done<CandleTensor> {
        let width = dpicked.len() / rows.len();
        let at = self.upload(rows.to_vec(), rows.len())?;
        let zeros = Tensor::zeros((n, width), DType::F32, &self.device)?;
        Ok(zeros.index_add(&at, &dpicked.rows(width)?, 0)?.into())
    }

    fn read<'a>(&self, act: &'a CandleTensor) -> Done<Cow<'a, [f32]>> {
        Ok(Cow::Owned(act.0.as_ref().map_or_else(|| Ok(Vec::new()), read)?))
    }

    fn act(&self, values: Vec<f32>) -> Done<CandleTensor> {
        let len = values.len();
        Ok(self.upload(values, len)?.into())
    }

    fn logits(
        &self,
        hidden: &CandleTensor,
        rows: &[u32],
        head: &OutputHead<Self>,
        _: &mut Pool<Self>,
    ) -> Done<Vec<f32>> {
        self.row_logits(hidden, rows, head)
    }

    fn choose<C: TokenChoice>(
        &self,
        hidden: &CandleTensor,
        rows: &[u32],
        head: &OutputHead<Self>,
        of: &mut [C],
        _: &mut Pool<Self>,
    ) -> Done<()> {
        let (logits, vocab) = (self.row_logits(hidden, rows, head)?, head.map.dims().0);
        let ready = of.par_iter_mut().filter_map(|choice| Some((choice.row()?, choice)));
        ready.try_for_each(|(row, choice)| choice.choose(&logits[row * vocab..][..vocab]))
    }

    fn draw(
        &self,
        hidden: &CandleTensor,
        rows: &[u32],
        head: &OutputHead<Self>,
        draws: &[TokenDraw],
        _: &mut Pool<Self>,
    ) -> Done<Vec<Result<Sampled, BadLogits>>> {
        let logits = self.row_logits(hidden, rows, head)?;
        let rows = logits.par_chunks_exact(head.map.dims().0).zip(draws);
        Ok(rows.map(|(logits, draw)| draw.sample(logits)).collect())
    }

    fn read_drawn(
        &self,
        of: &Vec<Result<Sampled, BadLogits>>,
    ) -> Done<Vec<Result<Sampled, BadLogits>>> {
        Ok(of.clone())
    }
}

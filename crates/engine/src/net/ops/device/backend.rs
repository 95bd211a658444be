//! A machine as a device on which models generate and are trained.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};

use maverl_kernels::attention::{BLOCK_TOKENS, Heads};
use maverl_kernels::cuda::{Destination, DeviceArray, KvShape, SampledTokens, from_bf16, to_bf16};
use maverl_kernels::sample::{BadLogits, Sampled, TokenDraw};

use super::{Device, DeviceNumbers, Runner, machine_error};
use crate::files::HfConfig;
use crate::net::Model;
use crate::net::linear::OutputHead;
use crate::net::ops::{Backend, Buffer, Done, KvCache, TokenChoice};
use crate::net::pool::Pool;

/// Blocks of the first allocation of a cache.
const FIRST_BLOCKS: usize = 64;

/// Blocks of keys and values on a machine. Their array is replaced by one of twice the size where it is full.
#[derive(Debug)]
pub struct DeviceKv<M: Runner> {
    /// Locked, as new tokens are appended through a shared reference.
    blocks: Mutex<DeviceNumbers<M, u16>>,
    pub(super) shape: KvShape,
    /// Workspace of recorded passes.
    pub(super) workspace: DeviceNumbers<M, u32>,
    /// Number of blocks in use.
    count: usize,
    /// Largest number of blocks.
    most: usize,
}

impl<M: Runner> DeviceKv<M> {
    /// Creates the cache of a recording, whose blocks get their address later.
    pub(super) fn for_recording(blocks: DeviceNumbers<M, u16>, shape: KvShape) -> Self {
        let workspace = DeviceNumbers::default();
        Self { blocks: Mutex::new(blocks), shape, workspace, count: 1, most: 1 }
    }

    /// Returns the blocks. They are valid even if a thread panicked with the lock.
    pub(super) fn blocks(&self) -> MutexGuard<'_, DeviceNumbers<M, u16>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Runner> KvCache for DeviceKv<M> {
    fn count(&self) -> usize {
        self.count
    }

    fn clear(&mut self) {
        (self.blocks, self.workspace, self.count) = (Mutex::default(), DeviceNumbers::default(), 0);
    }
}

fn shape(config: &HfConfig) -> KvShape {
    let Heads { kv: heads, dim, .. } = config.heads();
    KvShape { layers: config.layers.len(), heads, dim }
}

impl<M: Runner> Backend for Device<M> {
    fn load(&self, host: Model, trained: bool) -> Done<Model<Self>> {
        super::runs(&host.config)?;
        host.require_values()?;
        host.on(self, trained)
    }

    fn host(&self, model: &Model<Self>) -> Done<Model> {
        model.to_host(self)
    }

    fn store(&self, host: &Model, model: &Model<Self>) -> Done<()> {
        model.trainable().assign(self, host.trainable())
    }

    fn block_bytes(&self, config: &HfConfig) -> usize {
        shape(config).block_len() * size_of::<u16>()
    }

    fn kv(&self, config: &HfConfig, most: usize) -> DeviceKv<M> {
        let (blocks, workspace) = (Mutex::default(), DeviceNumbers::default());
        DeviceKv { blocks, shape: shape(config), workspace, count: 0, most }
    }

    fn add_block(&self, kv: &mut DeviceKv<M>) -> Done<u32> {
        let (block, room) = (kv.shape.block_len(), kv.blocks().len() / kv.shape.block_len());
        if kv.count == room {
            let more = (2 * room).max(FIRST_BLOCKS).min(kv.most).max(room + 1);
            let mut blocks = self.take(more * block)?;
            if kv.count > 0 {
                self.kernels
                    .copy_to_front(kv.blocks().read()?, blocks.write()?)
                    .map_err(machine_error)?;
            }
            kv.blocks = Mutex::new(blocks);
        }
        kv.count += 1;
        Ok(kv.count as u32 - 1)
    }

    fn copy_block(&self, kv: &mut DeviceKv<M>, [from, to]: [u32; 2], tokens: usize) -> Done<()> {
        debug_assert!(tokens <= BLOCK_TOKENS, "{tokens} tokens of a block");
        // The tokens after those are overwritten before they are read.
        let block = kv.shape.block_len();
        let places = [from, to].map(|index| index as usize * block);
        self.kernels.copy_within(kv.blocks().write()?, places, block).map_err(machine_error)
    }

    fn pick(&self, act: &Self::Act, width: usize, rows: &[u32]) -> Done<Self::Act> {
        let mut picked = self.take(rows.len() * width)?;
        let selected = self.kernels.selected_rows(rows).map_err(machine_error)?;
        self.kernels
            .combine_rows(act.read()?, &selected, width, picked.write()?)
            .map_err(machine_error)?;
        Ok(picked)
    }

    fn spread(&self, dpicked: &Self::Act, rows: &[u32], n: usize) -> Done<Self::Act> {
        let width = dpicked.len() / rows.len();
        let mut dact = self.take(n * width)?;
        let scattered = self.kernels.scattered_rows(rows, n).map_err(machine_error)?;
        self.kernels
            .combine_rows(dpicked.read()?, &scattered, width, dact.write()?)
            .map_err(machine_error)?;
        Ok(dact)
    }

    fn read<'a>(&self, act: &'a Self::Act) -> Done<Cow<'a, [f32]>> {
        Ok(Cow::Owned(from_bf16(&self.read_numbers(act)?)))
    }

    fn act(&self, values: Vec<f32>) -> Done<Self::Act> {
        self.upload(&to_bf16(&values))
    }

    fn logits(
        &self,
        hidden: &Self::Act,
        rows: &[u32],
        head: &OutputHead<Self>,
        _: &mut Pool<Self>,
    ) -> Done<Vec<f32>> {
        let logits = self.head_logits(hidden, rows, head)?;
        self.kernels.read_array(&logits).map_err(machine_error)
    }

    fn choose<C: TokenChoice>(
        &self,
        hidden: &Self::Act,
        rows: &[u32],
        head: &OutputHead<Self>,
        of: &mut [C],
        _: &mut Pool<Self>,
    ) -> Done<()> {
        let ready = of.iter_mut().filter_map(|choice| Some((choice.row()?, choice.draw(), choice)));
        let mut ready: Vec<(usize, Option<TokenDraw>, &mut C)> = ready.collect();
        // Rows whose logits are read come first.
        ready.sort_by_key(|(_, draw, _)| draw.is_some());
        let order: Vec<u32> = ready.iter().map(|(row, ..)| rows[*row]).collect();
        let logits = self.head_logits(hidden, &order, head)?;
        let vocab = head.map.dims().0;
        let whole = ready.iter().filter(|(_, draw, _)| draw.is_none()).count();
        let read = self.kernels.read_front(&logits, whole * vocab).map_err(machine_error)?;
        for ((.., choice), logits) in ready.iter_mut().zip(read.chunks_exact(vocab)) {
            choice.choose(logits)?;
        }
        if whole == ready.len() {
            return Ok(());
        }
        let unused = TokenDraw { temperature: 1.0, seed: 0, counter: 0 };
        let draws: Vec<TokenDraw> =
            ready.iter().map(|(_, draw, _)| draw.unwrap_or(unused)).collect();
        let sampled =
            self.kernels.choose_tokens(logits.as_slice(), &draws).map_err(machine_error)?;
        let drawn = ready.into_iter().zip(sampled).skip(whole);
        drawn.into_iter().try_for_each(|((.., choice), sampled)| choice.take_drawn(sampled))
    }

    fn runs_ahead(&self) -> bool {
        true
    }

    fn draw(
        &self,
        hidden: &Self::Act,
        rows: &[u32],
        head: &OutputHead<Self>,
        draws: &[TokenDraw],
        _: &mut Pool<Self>,
    ) -> Done<SampledTokens<M>> {
        let logits = self.head_logits(hidden, rows, head)?;
        self.kernels.launch_sampling(logits.as_slice(), draws).map_err(machine_error)
    }

    fn read_drawn(&self, of: &SampledTokens<M>) -> Done<Vec<Result<Sampled, BadLogits>>> {
        self.kernels.read_sampled(of).map_err(machine_error)
    }
}

impl<M: Runner> Device<M> {
    /// Computes the logits of some rows of hidden states.
    fn head_logits(
        &self,
        hidden: &DeviceNumbers<M, u16>,
        rows: &[u32],
        head: &OutputHead<Self>,
    ) -> Done<DeviceArray<M, f32>> {
        let (vocab, width) = head.map.dims();
        let picked = self.pick(hidden, width, rows)?;
        let mut logits = self.kernels.new_array(rows.len() * vocab).map_err(machine_error)?;
        self.map(&head.map, picked.read()?, Destination::F32(logits.slice_mut()))?;
        Ok(logits)
    }
}

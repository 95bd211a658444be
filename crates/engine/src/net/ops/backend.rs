//! Operations of a device around the passes of a model: models in its memory, caches, single rows, sampling.
//!
//! [`Memory`](super::Memory) has parameters, gradients and moments; [`Ops`](super::Ops) the passes of a decoder;
//! [`Backend`] what the engine, the trainer and critics need besides. Their tests are those of
//! `net/tests/contract.rs`, on every device.

use std::borrow::Cow;
use std::fmt::Debug;

use maverl_kernels::sample::{BadLogits, Sampled, TokenDraw};

use super::parts::no_kernel;
use super::{Done, Ops};
use crate::files::HfConfig;
use crate::net::Model;
use crate::net::linear::OutputHead;
use crate::net::pool::Pool;

/// Blocks of keys and values, by numbers from 0.
pub trait KvCache: Debug + Send + Sync {
    /// Returns the number of blocks.
    fn count(&self) -> usize;

    /// Frees every block.
    fn clear(&mut self);

    /// Gives a block a part for layers with a window: one that was taken from another, or a new one. Devices without such parts
    /// do nothing here and in the functions below.
    fn fill_window(&mut self, _block: u32) {}

    /// Takes the part for layers with a window from a block, for another.
    fn take_window(&mut self, _block: u32) {}

    /// Moves the part for layers with a window from one block to another, which has none.
    fn move_window(&mut self, _blocks: [u32; 2]) {}

    /// Frees the memory of a part that was taken.
    fn free_window(&mut self) {}

    /// Frees the memory of a block's part for layers without a window.
    fn free_block(&mut self, _block: u32) {}

    /// Gives a block after [`KvCache::free_block`] a part for layers without a window again.
    fn restore_block(&mut self, _block: u32) {}
}

/// A row of logits from which a token may be sampled.
pub trait TokenChoice: Send {
    /// Returns its index among the rows of a pass; `None` if nothing is sampled from it.
    fn row(&self) -> Option<usize>;

    /// Returns the draw that samples the token; `None` if it depends on all logits.
    fn draw(&self) -> Option<TokenDraw>;

    /// Samples the token from logits.
    ///
    /// # Errors
    ///
    /// If the logits describe no distribution.
    fn choose(&mut self, logits: &[f32]) -> Done<()>;

    /// Takes the token that [`TokenChoice::draw`] sampled.
    ///
    /// # Errors
    ///
    /// If the logits described no distribution.
    fn take_drawn(&mut self, sampled: Result<Sampled, BadLogits>) -> Done<()>;
}

/// A device on which models generate and are trained.
pub trait Backend: Ops<Kv: KvCache> {
    /// Moves a model to the device. Its own weights, without an adapter's, are stored for training or not.
    ///
    /// # Errors
    ///
    /// If the device fails, or cannot run the model.
    fn load(&self, host: Model, trained: bool) -> Done<Model<Self>>;

    /// Returns a model of the host with the current weights. On the CPU, it is the same model.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn host(&self, model: &Model<Self>) -> Done<Model>;

    /// Copies the trainable weights of a model of the host, which [`Backend::host`] returned, back to the device.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn store(&self, host: &Model, model: &Model<Self>) -> Done<()>;

    /// Returns a model for generation alone, which nothing else uses. Results have the same bits.
    ///
    /// # Errors
    ///
    /// If the weights are not those of the configuration.
    fn for_generation(&self, model: Model<Self>) -> Done<Model<Self>> {
        Ok(model)
    }

    /// Returns the bytes of a block of keys and values.
    fn block_bytes(&self, config: &HfConfig) -> usize;

    /// Returns the bytes of a block's part for layers with a window; 0 if blocks have no such part.
    fn window_bytes(&self, _config: &HfConfig) -> usize {
        0
    }

    /// Creates a cache without blocks; it gets at most `most`.
    fn kv(&self, config: &HfConfig, most: usize) -> Self::Kv;

    /// Adds a block and returns its number.
    ///
    /// # Errors
    ///
    /// If the device's memory is full.
    fn add_block(&self, kv: &mut Self::Kv) -> Done<u32>;

    /// Returns the bytes of the states of a sequence in recurrent layers; 0 if there are none.
    fn slot_bytes(&self, _config: &HfConfig) -> usize {
        0
    }

    /// Adds a slot of states, all zeros, and returns its number.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or it has no states.
    fn add_slot(&self, _kv: &mut Self::Kv) -> Done<u32> {
        Err(no_kernel("recurrent layers"))
    }

    /// Sets the states of a slot to those before the first token.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no states.
    fn reset_slot(&self, _kv: &mut Self::Kv, _slot: u32) -> Done<()> {
        Err(no_kernel("recurrent layers"))
    }

    /// Copies the states of one slot to another.
    ///
    /// # Errors
    ///
    /// If the device fails, or has no states.
    fn copy_slot(&self, _kv: &mut Self::Kv, _slots: [u32; 2]) -> Done<()> {
        Err(no_kernel("recurrent layers"))
    }

    /// Copies the first tokens of one block to another.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn copy_block(&self, kv: &mut Self::Kv, blocks: [u32; 2], tokens: usize) -> Done<()>;

    /// Selects rows of activations of a width.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn pick(&self, act: &Self::Act, width: usize, rows: &[u32]) -> Done<Self::Act>;

    /// Computes the backward pass of [`Backend::pick`] for `n` rows: gradients of rows that were selected more than
    /// once are summed.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn spread(&self, dpicked: &Self::Act, rows: &[u32], n: usize) -> Done<Self::Act>;

    /// Reads activations.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn read<'a>(&self, act: &'a Self::Act) -> Done<Cow<'a, [f32]>>;

    /// Reads activations, which are given up.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn unload(&self, act: Self::Act) -> Done<Vec<f32>> {
        Ok(self.read(&act)?.into_owned())
    }

    /// Copies activations to the device.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn act(&self, values: Vec<f32>) -> Done<Self::Act>;

    /// Computes the logits of some rows of hidden states of a width, and reads them.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn logits(
        &self,
        hidden: &Self::Act,
        rows: &[u32],
        head: &OutputHead<Self>,
        pool: &mut Pool<Self>,
    ) -> Done<Vec<f32>>;

    /// Samples tokens from the logits of some rows of hidden states.
    ///
    /// # Errors
    ///
    /// If the device fails, or logits describe no distribution.
    fn choose<C: TokenChoice>(
        &self,
        hidden: &Self::Act,
        rows: &[u32],
        head: &OutputHead<Self>,
        of: &mut [C],
        pool: &mut Pool<Self>,
    ) -> Done<()>;

    /// Returns true if the next pass is launched before the tokens that the last one sampled are read.
    fn runs_ahead(&self) -> bool {
        false
    }

    /// Samples tokens from the logits of some rows of hidden states, as many as draws, by draws without filters. A device
    /// need not have sampled them when this returns.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn draw(
        &self,
        hidden: &Self::Act,
        rows: &[u32],
        head: &OutputHead<Self>,
        draws: &[TokenDraw],
        pool: &mut Pool<Self>,
    ) -> Done<Self::Drawn>;

    /// Reads sampled tokens, without waiting for what was launched after them. A row whose logits describe no distribution
    /// is an error of its own.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn read_drawn(&self, of: &Self::Drawn) -> Done<Vec<Result<Sampled, BadLogits>>>;
}

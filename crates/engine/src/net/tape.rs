//! Training forward pass, and its backward pass.
//!
//! With checkpointing (Chen et al., 2016, arXiv:1604.06174) the intermediate results of a layer are not kept. The
//! backward pass recomputes them from the layer's input: the same operations on the same numbers, so the gradient is
//! the same to the bit.

use crate::files::ModelError;
use crate::net::decoder::{Decoder, Saved};
use crate::net::gradients::Gradients;
use crate::net::ops::{Cpu, Ops};
use crate::net::pool::Pool;
use crate::net::rows::Rows;

/// Results of a forward pass, kept for the backward pass.
pub struct Tape<'a, O: Ops = Cpu> {
    decoder: &'a Decoder<O>,
    at: O::Placed<'a>,
    layers: Vec<Kept<O>>,
    /// Output of the layers, `[N, D]`.
    last: O::Stream,
    /// Hidden states after the last norm, `[N, D]`.
    hidden: O::Act,
}

/// Kept results of a layer.
enum Kept<O: Ops> {
    All(Box<Saved<O>>),
    Input(O::Stream),
}

impl<'a, O: Ops> Tape<'a, O> {
    /// Runs the decoder on rows.
    ///
    /// # Errors
    ///
    /// If an id or position is out of range, or the device fails.
    pub fn record(
        decoder: &'a Decoder<O>,
        rows: Rows<'a>,
        checkpointing: bool,
        pool: &mut Pool<O>,
    ) -> Result<Self, ModelError> {
        decoder.check(rows.ids, rows.positions)?;
        let at = decoder.ops().place(rows)?;
        let mut x = decoder.embed(&at, pool)?;
        let mut layers = Vec::with_capacity(decoder.layers());
        for index in 0..decoder.layers() {
            let (out, saved) = decoder.layer(index, x, &at, pool)?;
            layers.push(if checkpointing {
                Kept::Input(saved.keep_input(pool))
            } else {
                Kept::All(Box::new(saved))
            });
            x = out;
        }
        let hidden = decoder.last_norm(&x, pool)?;
        Ok(Self { decoder, at, layers, last: x, hidden })
    }

    /// Returns the hidden states after the last norm, `[N, D]`.
    pub fn hidden(&self) -> &O::Act {
        &self.hidden
    }

    /// Adds the gradients of every trained weight, from that of the hidden states `[N, D]`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn backward(
        self,
        dhidden: &O::Act,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<(), ModelError> {
        let Self { decoder, at, layers, last, hidden } = self;
        let mut dx = decoder.last_norm_backward(&last, dhidden, gradients, pool)?;
        pool.give([hidden]);
        pool.give_streams([last]);
        for (index, kept) in layers.into_iter().enumerate().rev() {
            let saved = match kept {
                Kept::All(saved) => *saved,
                Kept::Input(x) => {
                    let (out, saved) = decoder.layer(index, x, &at, pool)?;
                    pool.give_streams([out]);
                    saved
                }
            };
            dx = decoder.layer_backward(index, saved, &at, dx, gradients, pool)?;
        }
        decoder.embed_backward(&at, &mut dx, gradients)?;
        pool.give_streams([dx]);
        Ok(())
    }
}

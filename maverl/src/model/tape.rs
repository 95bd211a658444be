//! Training forward pass, and its backward pass.
//!
//! With checkpointing (Chen et al., 2016, arXiv:1604.06174) the intermediate results of a layer are not kept. The
//! backward pass recomputes them from the layer's input: the same operations on the same numbers, so the gradient is
//! the same to the bit.

use maverl_kernels::attention::Packing;

use crate::model::ModelError;
use crate::model::decoder::{Decoder, Saved};
use crate::model::gradients::Gradients;
use crate::model::pool::Pool;

/// Rows packed one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// Token ids `[N]`.
    pub ids: &'a [u32],
    /// Position of each token in its row, `[N]`.
    pub positions: &'a [u32],
    /// Bounds of the rows.
    pub packing: Packing<'a>,
}

/// Results of a forward pass, kept for the backward pass.
pub struct Tape<'a> {
    decoder: &'a Decoder,
    rows: Rows<'a>,
    layers: Vec<Kept>,
    /// Output of the layers, `[N, D]`.
    last: Vec<f32>,
    /// Hidden states after the last norm, `[N, D]`.
    hidden: Vec<f32>,
}

/// Kept results of a layer.
enum Kept {
    All(Box<Saved>),
    Input(Vec<f32>),
}

impl<'a> Tape<'a> {
    /// Runs the decoder on rows.
    ///
    /// # Errors
    ///
    /// If an id or position is out of range.
    pub fn record(
        decoder: &'a Decoder,
        rows: Rows<'a>,
        checkpointing: bool,
        pool: &mut Pool,
    ) -> Result<Self, ModelError> {
        decoder.check(rows.ids, rows.positions)?;
        let mut x = decoder.embed(rows.ids, pool);
        let mut layers = Vec::with_capacity(decoder.layers());
        for index in 0..decoder.layers() {
            let (out, saved) = decoder.layer(index, x, rows.positions, rows.packing, pool);
            layers.push(match checkpointing {
                true => Kept::Input(saved.keep_input(pool)),
                false => Kept::All(Box::new(saved)),
            });
            x = out;
        }
        let hidden = decoder.last_norm(&x, pool);
        Ok(Self { decoder, rows, layers, last: x, hidden })
    }

    /// Returns the hidden states after the last norm, `[N, D]`.
    pub fn hidden(&self) -> &[f32] {
        &self.hidden
    }

    /// Adds the gradients of every trained weight, from that of the hidden states `[N, D]`.
    pub fn backward(self, dhidden: &[f32], gradients: &mut Gradients<'_>, pool: &mut Pool) {
        let Self { decoder, rows, layers, last, hidden } = self;
        let Rows { ids, positions, packing } = rows;
        let mut dx = decoder.last_norm_backward(&last, dhidden, gradients, pool);
        pool.give([last, hidden]);
        for (index, kept) in layers.into_iter().enumerate().rev() {
            let saved = match kept {
                Kept::All(saved) => *saved,
                Kept::Input(x) => {
                    let (out, saved) = decoder.layer(index, x, positions, packing, pool);
                    pool.give([out]);
                    saved
                }
            };
            decoder.layer_backward(index, saved, rows, &mut dx, gradients, pool);
        }
        decoder.embed_backward(ids, &dx, gradients);
        pool.give([dx]);
    }
}

//! Autograd's record of a training forward pass, cut between the layers.
//!
//! Each part is gone through backward on its own, from the loss down; what it recorded and the gradients it gave are free
//! before the next. With checkpointing (Chen et al., 2016, arXiv:1604.06174) a layer's record is not kept from the
//! forward pass but made again from the layer's input when its turn comes: the same operations on the same numbers, so
//! the gradient is the same to the bit.

use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, Var};

use crate::model::{Context, Decoder, nn};
use crate::runtime::packed::Packed;

/// The layers of a forward pass, until their backward pass.
pub(crate) struct Tape<'a> {
    model: &'a Decoder,
    rows: &'a Packed,
    checkpointing: bool,
    /// After the embedding, and after each layer.
    cuts: Vec<Cut>,
}

/// Hidden states `[N, D]` between two parts.
struct Cut {
    /// What the part before gave, with its record; `None` if it is to be made again.
    before: Option<Tensor>,
    /// What the part after was given: a variable where a gradient is to arrive.
    after: Tensor,
}

impl<'a> Tape<'a> {
    /// Runs the layers; the hidden states after them, `[N, D]`, are the start of what is recorded next.
    pub(crate) fn record(
        model: &'a Decoder,
        rows: &'a Packed,
        checkpointing: bool,
    ) -> Result<(Self, Tensor)> {
        let mut tape = Self { model, rows, checkpointing, cuts: Vec::new() };
        let mut hidden = tape.cut(0)?;
        for part in 1..=model.layers() {
            hidden = tape.cut(part)?;
        }
        Ok((tape, hidden))
    }

    /// Runs the next part and cuts after it.
    fn cut(&mut self, part: usize) -> Result<Tensor> {
        let before = self.run(part)?;
        let after = match before.track_op() {
            true => Var::from_tensor(&before)?.as_tensor().clone(),
            false => before.clone(),
        };
        let before = (!self.checkpointing).then_some(before);
        self.cuts.push(Cut { before, after: after.clone() });
        Ok(after)
    }

    /// The embedding is part 0; part `i` is layer `i - 1`, on what the cut before it holds.
    fn run(&self, part: usize) -> Result<Tensor> {
        let Packed { ids, positions, offsets, .. } = self.rows;
        match part.checked_sub(1) {
            None => self.model.embed(ids, positions),
            Some(layer) => {
                let x = &self.cuts[layer].after;
                self.model.layer(layer, x, positions, &mut Context::Packed(offsets))
            }
        }
    }

    /// Goes backward from a loss through what came after the layers and through the layers; `take` is called with the
    /// gradients of each part and takes those of the weights.
    pub(crate) fn backward(
        mut self,
        loss: Tensor,
        mut take: impl FnMut(&mut GradStore) -> Result<()>,
    ) -> Result<()> {
        let mut gradients = loss.backward()?;
        drop(loss);
        while let Some(Cut { before, after }) = self.cuts.pop() {
            let upstream = gradients.remove(&after);
            take(&mut gradients)?;
            drop((gradients, after));
            // Below, nothing is trained.
            let Some(upstream) = upstream else { return Ok(()) };
            let before = before.map_or_else(|| self.run(self.cuts.len()), Ok)?;
            gradients = nn::seed(&before, upstream)?.backward()?;
        }
        take(&mut gradients)
    }
}

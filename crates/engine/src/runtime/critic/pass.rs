//! Forward and backward passes of a trunk with a head over packed texts.

use std::ops::Range;

use maverl_kernels::attention::Packing;

use crate::files::ModelError;
use crate::net::ops::{Backend, Buffer};
use crate::net::{Context, Decoder, Gradients, HeadKind, Pool, Rows, Tape, ValueHead};
use crate::runtime::ValueText;
use crate::runtime::packed::PackedRows;

/// Packs texts as a head reads them.
pub(super) fn pack_texts<'a>(
    head: &ValueHead,
    texts: impl Iterator<Item = &'a ValueText>,
) -> PackedRows {
    match head.kind() {
        HeadKind::Value | HeadKind::Reward => PackedRows::texts(texts),
        HeadKind::Likelihood => PackedRows::predicted_rows(texts),
    }
}

/// Computes the values of packed texts.
pub(super) fn values<O: Backend>(
    head: &ValueHead,
    decoder: &Decoder<O>,
    packed: &PackedRows,
    pool: &mut Pool<O>,
) -> Result<Vec<f32>, ModelError> {
    if head.kind() == HeadKind::Likelihood {
        return Ok(head.values(&packed.logprobs(decoder, pool)?));
    }
    let (ops, Rows { ids, positions, packing }) = (decoder.ops(), packed.rows());
    let hidden = decoder.forward(ids, positions, Context::Packed(packing), pool)?;
    let values = head.values(&ops.read(&packed.predicting(ops, &hidden)?)?);
    pool.give([hidden]);
    Ok(values)
}

/// Computes the hidden state `[D]` at the position of a text's first value.
pub(super) fn first_state<O: Backend>(
    decoder: &Decoder<O>,
    text: &ValueText,
    pool: &mut Pool<O>,
) -> Result<Vec<f32>, ModelError> {
    let ids = &text.ids[..=text.ids.len() - text.places];
    let positions: Vec<u32> = (0..ids.len() as u32).collect();
    let (ops, whole) = (decoder.ops(), [0, ids.len()]);
    let context = Context::Packed(Packing::from_offsets(&whole));
    let hidden = decoder.forward(ids, &positions, context, pool)?;
    let last = ops.pick(&hidden, hidden.len() / ids.len(), &[ids.len() as u32 - 1])?;
    let state = ops.read(&last)?.into_owned();
    pool.give([hidden]);
    Ok(state)
}

/// Adds the gradients of a loss of the values. `slopes` gets a range of texts and their values, and returns the derivatives by these;
/// it is called with the texts in their order.
pub(super) fn backward<O: Backend>(
    head: &ValueHead,
    decoder: &Decoder<O>,
    (packed, tape): (&PackedRows, Tape<'_, O>),
    mut slopes: impl FnMut(Range<usize>, &[f32]) -> Vec<f32>,
    (of_trunk, of_head): (&mut Gradients<'_, O>, &mut Gradients<'_>),
    pool: &mut Pool<O>,
) -> Result<(), ModelError> {
    let ops = decoder.ops();
    let hidden = packed.predicting(ops, tape.hidden())?;
    let dhidden = if head.kind() == HeadKind::Likelihood {
        let (of, ends) = (packed.predicted(), &packed.completions);
        decoder.loss(&hidden, of, ends, of_trunk, |texts, [logp, _], [dlogp, _]| {
            let slopes = slopes(texts, &head.values(logp));
            dlogp.copy_from_slice(&head.backward(logp, &slopes, of_head));
            Ok(())
        })?
    } else {
        let hidden = ops.read(&hidden)?;
        let texts = 0..packed.rows().packing.offsets.len() - 1;
        let slopes = slopes(texts, &head.values(&hidden));
        ops.act(head.backward(&hidden, &slopes, of_head))?
    };
    tape.backward(&packed.spread(ops, &dhidden)?, of_trunk, pool)
}

//! Forward and backward passes of a trunk with a head over packed texts.

use std::ops::Range;

use crate::files::ModelError;
use crate::net::ops::Backend;
use crate::net::{Decoder, Gradients, HeadKind, Pool, Tape, ValueHead};
use crate::runtime::ValueText;
use crate::runtime::packed::{PackedRows, PassText};
use crate::runtime::pass::PassTexts;

/// Returns a pass over texts as a head reads them.
pub(super) fn pass_of_texts<'a>(
    head: &ValueHead,
    texts: impl Iterator<Item = &'a ValueText>,
) -> PassTexts<'a> {
    match head.kind() {
        HeadKind::Value | HeadKind::Reward => PassTexts::new(texts.map(PassText::of_values), true),
        HeadKind::Likelihood => PassTexts::new(texts.map(PassText::of_predicted), true),
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
    let hidden = packed.hidden(decoder, pool)?;
    Ok(head.values(&decoder.ops().read(&hidden)?))
}

/// Returns a pass over texts up to their first value.
pub(super) fn pass_of_states<'a>(texts: impl Iterator<Item = &'a ValueText>) -> PassTexts<'a> {
    let texts = texts.map(|text| PassText::of_state(&text.ids[..=text.ids.len() - text.places]));
    PassTexts::new(texts, true)
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
        let texts = 0..packed.completions.len() - 1;
        let slopes = slopes(texts, &head.values(&hidden));
        ops.act(head.backward(&hidden, &slopes, of_head))?
    };
    tape.backward(&packed.spread(ops, &dhidden)?, of_trunk, pool)
}

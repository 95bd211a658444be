//! Divergence of a policy from the teachers of rows, in the loss of an update.

use std::borrow::Cow;
use std::ops::Range;

use super::micro::{Micro, row_loss};
use crate::loss::{PolicyLoss, RowTokens, teacher_divergence};
use crate::runtime::{Batch, Row};

/// Returns the log-probs of the completion tokens, `[T]`, from those of `each` tokens a place, `[T, each]`.
pub(super) fn of_sampled(logp: &[f32], each: usize) -> Cow<'_, [f32]> {
    if each == 1 { logp.into() } else { logp.iter().step_by(each).copied().collect() }
}

impl Micro<'_> {
    /// Computes the loss of a row, and of its divergence from a teacher if it has one. Adds the derivatives by the log-probs of all
    /// tokens of each place, `[T, each]`, and by the entropies. `all` are the row's tokens in the micro-batch.
    pub(super) fn loss_with_teacher(
        &self,
        batch: &Batch,
        (row, all): (&Row, Range<usize>),
        tokens: &RowTokens<'_>,
        logp: &[f32],
        [d_logp, d_entropy]: [&mut [f32]; 2],
    ) -> PolicyLoss {
        let each = logp.len() / all.len();
        let mut own = vec![0.0; all.len()];
        let mut sums = row_loss(batch, row, tokens, [&mut own, d_entropy]);
        for (place, own) in d_logp.chunks_exact_mut(each).zip(own) {
            place[0] += own;
        }
        let Some(teacher) = &row.teacher else { return sums };
        let k = teacher.ids.len() / all.len();
        let mut slopes = vec![0.0; k];
        let places = logp.chunks_exact(each).zip(d_logp.chunks_exact_mut(each));
        let of_teacher = teacher.logprobs.chunks_exact(k).zip(&self.divergences[all]);
        for ((logp, d_logp), (teacher, &weight)) in places.zip(of_teacher) {
            let found = teacher_divergence(&batch.distill, &logp[1..=k], teacher, &mut slopes);
            sums.loss += f64::from(weight) * found.value;
            sums.divergence += found.value;
            sums.mass += found.mass;
            sums.taught += 1;
            for (d_logp, slope) in d_logp[1..].iter_mut().zip(&slopes) {
                *d_logp += (f64::from(weight) * slope) as f32;
            }
        }
        sums
    }
}

//! Derivatives of the loss of replies that are good or bad (KTO).

use std::borrow::Cow;
use std::ops::Range;

use super::{Totals, Trainer};
use crate::files::ModelError;
use crate::loss::{KtoReply, PreferenceOptions, kto, kto_shift};
use crate::net::ops::Backend;
use crate::net::{Model, Pool};
use crate::runtime::Row;

/// Rows of a reply, and true if it is good.
type RowsOfReply = (Range<usize>, bool);

impl<O: Backend> Trainer<O> {
    /// Computes the derivative of the mean loss of replies by each token's log-prob, packed. Of each pair, `pairs` has the numbers
    /// of rows of a good and of a bad reply, which follow each other in `rows`; one of them may be 0.
    ///
    /// All tokens of a reply have the same derivative. It is computed before any gradient, so micro-batches and ranks may split
    /// a reply.
    pub(super) fn labeled_grads(
        &self,
        model: &Model<O>,
        (rows, pairs): (&[&Row], &[[usize; 2]]),
        options: &PreferenceOptions,
        totals: &mut Totals,
        pool: &mut Pool<O>,
    ) -> Result<Vec<f32>, ModelError> {
        let ratios = self.log_ratios(model, rows, options, pool)?;
        let replies = replies_of(pairs);
        let shift = self.shift(model, (rows, &replies), options, pool)?;
        let count = replies.len() as f64;
        let mut grads = Vec::new();
        for (own, good) in replies {
            let tokens: usize = rows[own.clone()].iter().map(|row| row.completion.len()).sum();
            let reply = KtoReply { log_ratio: ratios[own].iter().sum(), good };
            let lost = kto(options, reply, shift);
            totals.policy.loss += lost.value / count;
            totals.policy.surrogate += lost.value / count;
            totals.pairs.add_labeled(reply, options.beta, shift);
            grads.extend(std::iter::repeat_n((lost.grad / count) as f32, tokens));
        }
        totals.pairs.add_shift(shift);
        Ok(grads)
    }

    /// Computes z₀ of a minibatch, from each reply under the prompts of another one.
    fn shift(
        &self,
        model: &Model<O>,
        (rows, replies): (&[&Row], &[RowsOfReply]),
        options: &PreferenceOptions,
        pool: &mut Pool<O>,
    ) -> Result<f64, ModelError> {
        let mismatched = mismatched_rows(rows, replies);
        if mismatched.is_empty() {
            return Ok(0.0);
        }
        let all: Vec<&Row> = mismatched.iter().flatten().collect();
        let own = self
            .logprobs_under(&all, true, pool, |_, _| Cow::Borrowed(&model.decoder))
            .and_then(|own| self.less_reference(&all, &own, options, pool))?;
        let mut own = own.into_iter();
        let sums: Vec<f64> =
            mismatched.iter().map(|rows| own.by_ref().take(rows.len()).sum()).collect();
        Ok(kto_shift(&sums))
    }
}

/// Returns the rows of each reply of pairs, in the order of the rows.
fn replies_of(pairs: &[[usize; 2]]) -> Vec<RowsOfReply> {
    let mut at = 0;
    let mut replies = Vec::new();
    for (&count, good) in pairs.iter().flat_map(|[good, bad]| [(good, true), (bad, false)]) {
        if count > 0 {
            replies.push((at..at + count, good));
        }
        at += count;
    }
    replies
}

/// Returns, for each reply, rows with its prompts and the completions of another reply; none of a reply without another. The other
/// one is the first with another first prompt, from half a minibatch after it and around. Where each prompt has a good reply and a
/// bad one, as many of the others are good as bad.
///
/// A completion is cut so that no row is longer than the longest of the minibatch.
fn mismatched_rows(rows: &[&Row], replies: &[RowsOfReply]) -> Vec<Vec<Row>> {
    let longest = rows.iter().map(|row| row.prompt.len() + row.completion.len()).max();
    let longest = longest.unwrap_or_default();
    let mut mismatched = Vec::new();
    for (reply, (own, _)) in replies.iter().enumerate() {
        if let Some(other) = other_reply(rows, replies, reply) {
            let both = rows[own.clone()].iter().zip(&rows[replies[other].0.clone()]);
            mismatched.push(both.map(|(own, other)| mixed_row(own, other, longest)).collect());
        }
    }
    mismatched
}

/// Returns the first reply with another first prompt, from half a minibatch after a reply.
fn other_reply(rows: &[&Row], replies: &[RowsOfReply], reply: usize) -> Option<usize> {
    let (n, first) = (replies.len(), |reply: usize| &rows[replies[reply].0.start].prompt);
    (0..n).map(|by| (reply + n / 2 + by) % n).find(|&other| first(other) != first(reply))
}

/// Returns a row with the prompt of one row and the completion of another, of at most `longest` tokens.
fn mixed_row(prompt: &Row, completion: &Row, longest: usize) -> Row {
    let room = longest - prompt.prompt.len();
    Row {
        prompt: prompt.prompt.clone(),
        completion: completion.completion.iter().take(room).copied().collect(),
        temperature: completion.temperature,
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_after_the_prompt_of_another_task() {
        let row = |prompt: &[u32], completion: &[u32]| Row {
            prompt: prompt.to_vec(),
            completion: completion.to_vec(),
            ..Row::default()
        };
        let rows = [
            row(&[1], &[10]),
            row(&[1], &[11, 12]),
            row(&[2, 3, 4], &[20, 21]),
            row(&[2, 3, 4, 5], &[22]),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        let replies = replies_of(&[[1, 1], [2, 0]]);
        assert_eq!(replies, [(0..1, true), (1..2, false), (2..4, true)]);
        let found = mismatched_rows(&rows, &replies);
        let texts = |rows: &[Row]| -> Vec<(Vec<u32>, Vec<u32>)> {
            rows.iter().map(|row| (row.prompt.clone(), row.completion.clone())).collect()
        };
        assert_eq!(texts(&found[0]), [(vec![1], vec![20, 21])]);
        assert_eq!(texts(&found[1]), [(vec![1], vec![20, 21])]);
        assert_eq!(texts(&found[2]), [(vec![2, 3, 4], vec![10])]);
        assert!(mismatched_rows(&rows[..2], &replies[..2]).is_empty(), "no other prompt");
        let long = [row(&[1, 2, 3], &[4]), row(&[5], &[6, 7, 8])];
        let long: Vec<&Row> = long.iter().collect();
        let found = mismatched_rows(&long, &replies_of(&[[1, 0], [0, 1]]));
        assert_eq!(texts(&found[0]), [(vec![1, 2, 3], vec![6])], "at most four tokens");
    }
}

//! The most probable tokens in each place of a text.

use std::cmp::Ordering;

use maverl_kernels::logprob::logprobs;
use rayon::prelude::*;

/// Log-prob of a token that a model does not have: that of the least probability of all tokens outside a support.
const ABSENT: f32 = -13.815_511;

/// Tokens whose log-probs are computed in each place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Support {
    /// The `k` most probable ones of the first `among` ids.
    Top { k: usize, among: usize },
    /// Those of the rows' teachers, as many in each place.
    Given,
}

/// Tokens in the place of each of the `T` completion tokens of a row: the `k` most probable ones, the most probable first, of equal
/// ones that with the smaller id; or given ones, in their order.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct TopTokens {
    /// Token ids, `[T, k]`.
    pub ids: Vec<u32>,
    /// Their log-probs at the temperature of the row, `[T, k]`.
    pub logprobs: Vec<f32>,
    /// Log-probs of the completion tokens, `[T]`.
    pub sampled: Vec<f32>,
    /// Entropies in nats over the whole vocabulary, `[T]`.
    pub entropies: Vec<f32>,
}

impl TopTokens {
    /// Reads the numbers of a row of `T` completion tokens, `[T, 2 k + 2]`: of each place the ids, which are exact in f32 (below 2²⁴),
    /// their log-probs, the log-prob of the completion token, and the entropy.
    pub(crate) fn of_row(numbers: &[f32], completion: usize) -> Self {
        let mut found = Self::default();
        let k = numbers.len() / completion.max(1) / 2 - 1;
        for place in numbers.chunks_exact(2 * k + 2) {
            found.ids.extend(place[..k].iter().map(|&id| id as u32));
            found.logprobs.extend_from_slice(&place[k..2 * k]);
            found.sampled.push(place[2 * k]);
            found.entropies.push(place[2 * k + 1]);
        }
        found
    }
}

/// Returns the `k` most probable tokens of places among the first ids, `[n, k]`, from their logits `[n, vocab]`.
pub(super) fn most_probable(logits: &[f32], vocab: usize, (k, among): (usize, usize)) -> Vec<u32> {
    logits.par_chunks(vocab).flat_map_iter(|row| largest(&row[..among], k)).collect()
}

/// Computes the numbers of places, `[n, 2 k + 2]`, from their logits `[n, vocab]`, completion tokens, inverse temperatures and
/// tokens `[n, k]`. A token that the model does not have has the log-prob of a probability of 1e-6.
pub(super) fn numbers(
    logits: &[f32],
    vocab: usize,
    (targets, inverse): (&[u32], &[f32]),
    tokens: &[u32],
) -> Vec<f32> {
    let (n, k) = (targets.len(), tokens.len() / targets.len());
    let is_known = |id: u32| (id as usize) < vocab;
    let places = tokens.chunks_exact(k).zip(targets);
    let ids = places.flat_map(|(tokens, target)| tokens.iter().chain([target]).copied());
    let ids: Vec<u32> = ids.map(|id| if is_known(id) { id } else { 0 }).collect();
    let (mut logp, mut entropy) = (vec![0.0; ids.len()], vec![0.0; n]);
    logprobs(logits, vocab, &ids, inverse, &mut logp, &mut entropy);
    let mut found = Vec::with_capacity(n * (2 * k + 2));
    for ((tokens, logp), entropy) in
        tokens.chunks_exact(k).zip(logp.chunks_exact(k + 1)).zip(entropy)
    {
        found.extend(tokens.iter().map(|&id| id as f32));
        let of_tokens = tokens.iter().zip(logp);
        found.extend(of_tokens.map(|(&id, &logp)| if is_known(id) { logp } else { ABSENT }));
        found.extend([logp[k], entropy]);
    }
    found
}

/// Returns the ids of the `k` largest logits, the largest first.
fn largest(logits: &[f32], k: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    let before = |a: &u32, b: &u32| order(logits, [*a, *b]);
    if k < ids.len() {
        ids.select_nth_unstable_by(k, before);
        ids.truncate(k);
    }
    ids.sort_unstable_by(before);
    ids
}

/// Returns the order of two ids: the one with the larger logit first, of equal ones the smaller.
fn order(logits: &[f32], [a, b]: [u32; 2]) -> Ordering {
    logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_probable_tokens_come_first_and_of_equal_ones_the_smaller_id() {
        assert_eq!(largest(&[0.5, 2.0, -1.0, 2.0, 0.5], 3), [1, 3, 0]);
        assert_eq!(largest(&[1.0, 1.0], 2), [0, 1]);
        let logits = [0.0, 1.0, 3.0, 2.0];
        let tops = most_probable(&logits, 4, (2, 4));
        let found = TopTokens::of_row(&numbers(&logits, 4, (&[0], &[0.5]), &tops), 1);
        assert_eq!(found.ids, [2, 3]);
        let sum: f32 = logits.iter().map(|z| (z * 0.5).exp()).sum();
        for (logp, z) in found.logprobs.iter().chain(&found.sampled).zip([3.0_f32, 2.0, 0.0]) {
            assert!((logp - (z * 0.5 - sum.ln())).abs() < 1e-6, "{found:?}");
        }
        assert_eq!(most_probable(&logits, 4, (2, 3)), [2, 1]);
        assert!(found.entropies[0] > 1.0 && found.entropies[0] < 4_f32.ln(), "{found:?}");
    }

    #[test]
    fn given_tokens_keep_their_order_and_one_that_the_model_lacks_is_improbable() {
        let logits = [0.0, 1.0, 3.0, 2.0, 0.5, 0.25, 0.0, -1.0];
        let given = [1, 9, 2, 3, 0, 8];
        let found = TopTokens::of_row(&numbers(&logits, 4, (&[0, 2], &[1.0, 0.5]), &given), 2);
        let tops = most_probable(&logits, 4, (4, 4));
        let all = TopTokens::of_row(&numbers(&logits, 4, (&[0, 2], &[1.0, 0.5]), &tops), 2);
        assert_eq!((&found.ids[..], &found.sampled), (&given[..], &all.sampled));
        let own = |place: usize, id: u32| {
            let at = all.ids[4 * place..][..4].iter().position(|known| *known == id);
            at.map_or(ABSENT, |at| all.logprobs[4 * place + at])
        };
        let wanted: Vec<f32> = given.iter().enumerate().map(|(at, &id)| own(at / 3, id)).collect();
        assert_eq!(found.logprobs, wanted);
        assert!((ABSENT.exp() - 1e-6).abs() < 1e-11);
    }
}

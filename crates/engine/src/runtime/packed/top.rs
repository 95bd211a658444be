//! The most probable tokens in each place of a text.

use std::cmp::Ordering;

use maverl_kernels::logprob::logprobs;
use rayon::prelude::*;

/// The `k` most probable tokens in the place of each of the `T` completion tokens of a row, the most probable first; of equal ones,
/// that with the smaller id.
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
    /// Reads the numbers of a row, `[T, 2 k + 2]`: of each place the ids, which are exact in f32 (below 2²⁴), their log-probs, the
    /// log-prob of the completion token, and the entropy.
    pub(crate) fn of_numbers(numbers: &[f32], k: usize) -> Self {
        let mut found = Self::default();
        for place in numbers.chunks_exact(2 * k + 2) {
            found.ids.extend(place[..k].iter().map(|&id| id as u32));
            found.logprobs.extend_from_slice(&place[k..2 * k]);
            found.sampled.push(place[2 * k]);
            found.entropies.push(place[2 * k + 1]);
        }
        found
    }
}

/// Computes the numbers of places, `[n, 2 k + 2]`, from their logits `[n, vocab]`, completion tokens and inverse temperatures.
pub(super) fn numbers(
    logits: &[f32],
    vocab: usize,
    (targets, inverse): (&[u32], &[f32]),
    k: usize,
) -> Vec<f32> {
    let n = targets.len();
    let tops: Vec<Vec<u32>> = logits.par_chunks(vocab).map(|row| largest(row, k)).collect();
    let with_target = |(top, &target): (&Vec<u32>, &u32)| [&top[..], &[target]].concat();
    let ids: Vec<u32> = tops.iter().zip(targets).flat_map(with_target).collect();
    let (mut logp, mut entropy) = (vec![0.0; ids.len()], vec![0.0; n]);
    logprobs(logits, vocab, &ids, inverse, &mut logp, &mut entropy);
    let mut found = Vec::with_capacity(n * (2 * k + 2));
    for ((top, logp), entropy) in tops.iter().zip(logp.chunks_exact(k + 1)).zip(entropy) {
        found.extend(top.iter().map(|&id| id as f32));
        found.extend_from_slice(logp);
        found.push(entropy);
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
        let found = TopTokens::of_numbers(&numbers(&logits, 4, (&[0], &[0.5]), 2), 2);
        assert_eq!(found.ids, [2, 3]);
        let sum: f32 = logits.iter().map(|z| (z * 0.5).exp()).sum();
        for (logp, z) in found.logprobs.iter().chain(&found.sampled).zip([3.0_f32, 2.0, 0.0]) {
            assert!((logp - (z * 0.5 - sum.ln())).abs() < 1e-6, "{found:?}");
        }
        assert!(found.entropies[0] > 1.0 && found.entropies[0] < 4_f32.ln(), "{found:?}");
    }
}

//! Log-probability and entropy of target tokens, without ever holding the logits of all rows.
//!
//! ```text
//! z = (h wᵀ) / T,   log p(t) = z_t − logsumexp(z),   H = −Σ p log p   (nats)
//! ```
//!
//! Rows are taken in chunks, each chunk's logits are computed, used and dropped, and computed again in the backward.
//! Sums over the vocabulary are `f32` in sixteen lanes for 256 elements and `f64` from there on, which keeps them within
//! 1e-6 of `f64` for any vocabulary.

mod row;

pub(crate) use row::{Row, distance};

use rayon::prelude::*;

use crate::matmul::{Packed, Precision};
use crate::{lanes, par};

/// Logits of one chunk.
const CHUNK: usize = 1 << 21;

/// Computes log-probability and entropy `[n]` of `targets [n]` under the softmax of `(h wᵀ) * inv_temperature[row]`, with
/// `h [n, d]` and `w [V, d]`.
///
/// # Panics
///
/// If the lengths differ from the shapes, or a target is not below `V`.
pub fn linear_logprob(
    h: &[f32],
    w: &[f32],
    targets: &[u32],
    inv_temperature: &[f32],
    precision: Precision,
    logp: &mut [f32],
    entropy: &mut [f32],
) {
    let (n, vocab, d) = check_linear("linear_logprob", h, w, targets);
    check_rows("linear_logprob", n, inv_temperature, logp, entropy);
    let rows = chunk_rows(vocab).min(n.max(1));
    let mut logits = vec![0.0; rows * vocab];
    let packed = Packed::pack(precision, w, vocab, d);
    for start in (0..n).step_by(rows) {
        let at = start..n.min(start + rows);
        let logits = &mut logits[..at.len() * vocab];
        precision.set().nt_packed(&h[start * d..at.end * d], &packed, logits, at.len());
        let (targets, inverse) = (&targets[at.clone()], &inv_temperature[at.clone()]);
        all_rows(logits, vocab, targets, inverse, &mut logp[at.clone()], &mut entropy[at]);
    }
}

/// The gradients of [`linear_logprob`], from those of its two outputs; `dh [n, d]` is overwritten; to
/// `dw [V, d]`, which a frozen head does without, it is added.
///
/// ```text
/// dz_v = dlogp (1[v = t] − p_v) − dH p_v (log p_v + H),   dlogits = dz / T
/// ```
///
/// # Panics
///
/// As [`linear_logprob`].
#[expect(clippy::too_many_arguments, reason = "the forward's inputs, two gradients in, two out")]
pub fn linear_logprob_bwd(
    h: &[f32],
    w: &[f32],
    targets: &[u32],
    inv_temperature: &[f32],
    precision: Precision,
    dlogp: &[f32],
    dentropy: &[f32],
    dh: &mut [f32],
    mut dw: Option<&mut [f32]>,
) {
    let (n, vocab, d) = check_linear("linear_logprob_bwd", h, w, targets);
    check_rows("linear_logprob_bwd", n, inv_temperature, dlogp, dentropy);
    assert_eq!(
        dh.len(),
        h.len(),
        "linear_logprob_bwd: dh has {} elements, h {}",
        dh.len(),
        h.len()
    );
    if let Some(dw) = dw.as_deref_mut() {
        assert_eq!(
            dw.len(),
            w.len(),
            "linear_logprob_bwd: dw has {} elements, w {}",
            dw.len(),
            w.len()
        );
    }
    let rows = chunk_rows(vocab).min(n.max(1));
    let mut logits = vec![0.0; rows * vocab];
    let packed = Packed::pack(precision, w, vocab, d);
    for start in (0..n).step_by(rows) {
        let at = start..n.min(start + rows);
        let logits = &mut logits[..at.len() * vocab];
        let h = &h[start * d..at.end * d];
        precision.set().nt_packed(h, &packed, logits, at.len());
        par::parts(logits, vocab, |first, logits| {
            let first = start + first / vocab;
            for (i, logits) in logits.chunks_exact_mut(vocab).enumerate() {
                let (row, inverse) = (first + i, inv_temperature[first + i]);
                let target = targets[row] as usize;
                lanes::dispatch(
                    #[inline(always)]
                    || row::gradient(logits, target, inverse, dlogp[row], dentropy[row]),
                );
            }
        });
        precision.set().nn(logits, w, &mut dh[start * d..at.end * d], at.len(), d, vocab);
        if let Some(dw) = dw.as_deref_mut() {
            precision.add().tn(logits, h, dw, vocab, d, at.len());
        }
    }
}

/// Computes log-probability and entropy `[n]` of `targets [n]` under the softmax of `logits [n, vocab]` times
/// `inv_temperature [n]`.
///
/// # Panics
///
/// If the lengths differ from the shapes, or a target is not below `vocab`.
pub fn logprobs(
    logits: &[f32],
    vocab: usize,
    targets: &[u32],
    inv_temperature: &[f32],
    logp: &mut [f32],
    entropy: &mut [f32],
) {
    let n = targets.len();
    let len = logits.len();
    assert!(vocab > 0 && len == n * vocab, "logprobs: logits have {len}, not [{n}, {vocab}]");
    check_targets("logprobs", targets, vocab);
    check_rows("logprobs", n, inv_temperature, logp, entropy);
    all_rows(logits, vocab, targets, inv_temperature, logp, entropy);
}

/// Rows of a chunk: a product of few rows is mostly reading `w`, one of too many leaves the cache.
fn chunk_rows(vocab: usize) -> usize {
    (CHUNK / vocab).clamp(128, 512)
}

fn all_rows(
    logits: &[f32],
    vocab: usize,
    targets: &[u32],
    inv_temperature: &[f32],
    logp: &mut [f32],
    entropy: &mut [f32],
) {
    let one = |i: usize, logp: &mut f32, entropy: &mut f32| {
        let logits = &logits[i * vocab..(i + 1) * vocab];
        let row = lanes::dispatch(
            #[inline(always)]
            || Row::of(logits, inv_temperature[i]),
        );
        *logp = row.logp(logits[targets[i] as usize]);
        *entropy = row.entropy() as f32;
    };
    if par::worth_it(logits.len()) {
        let outputs = logp.par_iter_mut().zip(entropy.par_iter_mut());
        let outputs = outputs.with_min_len(par::GRAIN.div_ceil(vocab)).enumerate();
        outputs.for_each(|(i, (logp, entropy))| one(i, logp, entropy));
    } else {
        let outputs = logp.iter_mut().zip(entropy.iter_mut()).enumerate();
        outputs.for_each(|(i, (logp, entropy))| one(i, logp, entropy));
    }
}

/// Asserts the shapes of a linear layer and its targets; returns rows, vocabulary and width.
fn check_linear(name: &str, h: &[f32], w: &[f32], targets: &[u32]) -> (usize, usize, usize) {
    let n = targets.len();
    let d = h.len() / n.max(1);
    assert_eq!(h.len(), n * d, "{name}: h has {} elements, not whole rows of {n}", h.len());
    assert!(n == 0 || d > 0 && w.len().is_multiple_of(d), "{name}: w of {}", w.len());
    let vocab = w.len() / d.max(1);
    check_targets(name, targets, vocab);
    (n, vocab, d)
}

fn check_targets(name: &str, targets: &[u32], vocab: usize) {
    let most = targets.iter().max().map_or(0, |&t| t as usize + 1);
    assert!(most <= vocab, "{name}: target {} of a vocabulary of {vocab}", most.max(1) - 1);
}

fn check_rows(name: &str, n: usize, inv_temperature: &[f32], a: &[f32], b: &[f32]) {
    let lens = (inv_temperature.len(), a.len(), b.len());
    assert_eq!(lens, (n, n, n), "{name}: temperatures, log-probs and entropies of {n} rows");
    assert!(inv_temperature.iter().all(|&t| t > 0.0), "{name}: temperatures are positive");
}

#[cfg(test)]
mod tests;

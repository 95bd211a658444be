//! Log-probability and entropy of target tokens, without holding the logits of all rows.
//!
//! ```text
//! z = (h wᵀ) / T,   log p(t) = z_t − logsumexp(z),   H = −Σ p log p   (nats)
//! ```
//!
//! A head may bound its logits: `h wᵀ` is then replaced by `c tanh(h wᵀ / c)`, before the temperature.
//!
//! Rows are processed in chunks: each chunk's logits are computed, used and dropped. The backward pass does the same:
//! the loss of whole sequences is computed as soon as their log-probs are known, while their logits are still in
//! memory. Only a sequence longer than a chunk has its logits recomputed. Sums over the vocabulary are `f32` in sixteen
//! lanes for 256 elements and `f64` beyond, which keeps them within 1e-6 of `f64` for any vocabulary.
//!
//! A chunk has at most 512 rows. For vocabularies above 4096 it has 2²¹ divided by the size of the vocabulary, but at
//! least 128.

mod cap;
mod row;
mod shapes;

pub use cap::cap_logits;
pub(crate) use row::LogitRow;

use std::ops::Range;

use pulp::Simd;
use rayon::prelude::*;

use crate::lanes::{self, Kernel, Lanes};
use crate::matmul::{PackedWeight, Precision};
use crate::pages::large_zeros;
use crate::par;
use shapes::{check_rows, check_targets, targets_of_a_row};

/// Maximum number of logits of one chunk.
const CHUNK: usize = 1 << 21;

/// Distributions `softmax(cap(h wᵀ) * inv_temperature)` with the same number `k` of target tokens each, usually one.
#[derive(Debug, Clone, Copy)]
pub struct LmHead<'a> {
    /// Hidden states `[n, d]`.
    pub h: &'a [f32],
    /// Weight of the head, `[V, d]`.
    pub w: &'a [f32],
    /// Target tokens `[n, k]`, below `V`.
    pub targets: &'a [u32],
    /// Inverse temperatures `[n]`, positive.
    pub inv_temperature: &'a [f32],
    /// Bound `c` of the logits, `cap(x) = c tanh(x / c)`; `cap(x) = x` if there is none.
    pub softcap: Option<f32>,
    /// Precision of the products.
    pub precision: Precision,
}

impl LmHead<'_> {
    /// Computes log-probabilities `[n, k]` and entropies `[n]`.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or a target is not below `V`.
    pub fn logprobs(&self, logp: &mut [f32], entropy: &mut [f32]) {
        let (n, vocab, d) = self.check_linear("logprobs of a head");
        let k = check_rows("logprobs of a head", self.inv_temperature, self.targets, logp, entropy);
        let rows = chunk_rows(vocab).min(n.max(1));
        let mut logits = large_zeros(rows * vocab);
        let packed = PackedWeight::pack(self.precision, self.w, vocab, d);
        for at in split_chunks(0..n, rows) {
            let logits = self.compute_logits(&packed, at.clone(), &mut logits);
            let (of, inverse) = (at.start * k..at.end * k, &self.inv_temperature[at.clone()]);
            let targets = &self.targets[of.clone()];
            all_rows(logits, targets, inverse, &mut logp[of], &mut entropy[at], None);
        }
    }

    /// Computes the gradients of a loss of log-probabilities and entropies. Sequence `s` is the rows
    /// `offsets[s]..offsets[s + 1]`. `loss` is called once for some consecutive sequences at a time, with the log-probs
    /// `[rows, k]` and entropies `[rows]` of their rows, and writes its derivatives by both. `dh [n, d]` is overwritten. The
    /// gradient of the weight is added to `dw [V, d]`, which a frozen head omits.
    ///
    /// ```text
    /// dz_v = Σ_t dlogp_t (1[v = t] − p_v) − dH p_v (log p_v + H),   dlogits = dz / T,   d(h wᵀ) = dlogits (1 − (logits / c)²)
    /// ```
    ///
    /// # Errors
    ///
    /// The error that `loss` returns.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, a target is not below `V`, or `offsets` does not rise from 0 to `n`.
    pub fn loss_gradients<E>(
        &self,
        offsets: &[usize],
        mut loss: impl FnMut(Range<usize>, [&[f32]; 2], [&mut [f32]; 2]) -> Result<(), E>,
        dh: &mut [f32],
        mut dw: Option<&mut [f32]>,
    ) -> Result<(), E> {
        let (n, vocab, d) = self.check_linear("loss of a head");
        let k = self.check_loss(offsets, dh, dw.as_deref());
        let most = chunk_rows(vocab).min(n.max(1));
        let mut logits = large_zeros(most * vocab);
        let packed = PackedWeight::pack(self.precision, self.w, vocab, d);
        let mut outputs = Outputs::default();
        for sequences in group_sequences(offsets, most) {
            let at = offsets[sequences.start]..offsets[sequences.end];
            outputs.resize(at.len(), k);
            let Outputs { logp, entropy, dlogp, dentropy, rows } = &mut outputs;
            for part in split_chunks(at.clone(), most) {
                let here = part.start - at.start..part.end - at.start;
                let logits = self.compute_logits(&packed, part.clone(), &mut logits);
                let targets = &self.targets[part.start * k..part.end * k];
                let (inverse, of) = (&self.inv_temperature[part], here.start * k..here.end * k);
                let (logp, entropy) = (&mut logp[of], &mut entropy[here.clone()]);
                all_rows(logits, targets, inverse, logp, entropy, Some(&mut rows[here]));
            }
            loss(sequences, [logp, entropy], [dlogp, dentropy])?;
            for part in split_chunks(at.clone(), most) {
                let here = part.start - at.start..part.end - at.start;
                let logits = if at.len() <= most {
                    &mut logits[..at.len() * vocab]
                } else {
                    self.compute_logits(&packed, part.clone(), &mut logits)
                };
                let derivatives = [&dlogp[here.start * k..here.end * k], &dentropy[here.clone()]];
                self.backward_rows(logits, part, &rows[here], derivatives, dh, dw.as_deref_mut());
            }
        }
        Ok(())
    }

    /// Asserts the shapes of a loss. Returns the number of targets of a row.
    fn check_loss(&self, offsets: &[usize], dh: &[f32], dw: Option<&[f32]>) -> usize {
        let (targets, inverse) = (self.targets, self.inv_temperature);
        let (n, k) = (inverse.len(), targets_of_a_row("loss of a head", targets, inverse));
        let ends = (offsets.first(), offsets.last());
        assert!(
            ends == (Some(&0), Some(&n)) && offsets.is_sorted(),
            "loss of a head: {n} rows, offsets {ends:?}"
        );
        for (name, len, of) in [
            ("dh", dh.len(), self.h.len()),
            ("dw", dw.map_or(self.w.len(), <[f32]>::len), self.w.len()),
        ] {
            assert_eq!(len, of, "loss of a head: {name} has {len} elements, not {of}");
        }
        k
    }

    /// Asserts the shapes of the head and its targets. Returns rows, vocabulary and width.
    fn check_linear(&self, name: &str) -> (usize, usize, usize) {
        let Self { h, w, targets, inv_temperature, .. } = self;
        let n = inv_temperature.len();
        let d = h.len() / n.max(1);
        assert_eq!(h.len(), n * d, "{name}: h has {} elements, not whole rows of {n}", h.len());
        assert!(n == 0 || d > 0 && w.len().is_multiple_of(d), "{name}: w of {}", w.len());
        let vocab = w.len() / d.max(1);
        check_targets(name, targets, vocab);
        (n, vocab, d)
    }

    /// Computes the gradients of some rows, overwriting their logits.
    fn backward_rows(
        &self,
        logits: &mut [f32],
        at: Range<usize>,
        rows: &[LogitRow],
        derivatives: [&[f32]; 2],
        dh: &mut [f32],
        dw: Option<&mut [f32]>,
    ) {
        let (n, vocab) = (at.len(), logits.len() / at.len());
        let d = self.w.len() / vocab;
        self.replace_by_gradient(logits, at.start, rows, derivatives);
        let here = at.start * d..at.end * d;
        self.precision.set().nn(logits, self.w, &mut dh[here.clone()], n, d, vocab);
        if let Some(dw) = dw {
            self.precision.add().tn(logits, &self.h[here], dw, vocab, d, n);
        }
    }

    /// Computes the logits of some rows into the front of `out`.
    fn compute_logits<'o>(
        &self,
        w: &PackedWeight,
        rows: Range<usize>,
        out: &'o mut [f32],
    ) -> &'o mut [f32] {
        let (vocab, d) = w.shape();
        let out = &mut out[..rows.len() * vocab];
        self.precision.set().nt_packed(&self.h[rows.start * d..rows.end * d], w, out, rows.len());
        if let Some(cap) = self.softcap {
            cap_logits(out, cap);
        }
        out
    }

    /// Replaces the logits of the rows from `start` on by their gradients.
    fn replace_by_gradient(
        &self,
        logits: &mut [f32],
        start: usize,
        rows: &[LogitRow],
        [dlogp, dentropy]: [&[f32]; 2],
    ) {
        let (vocab, k) = (logits.len() / rows.len(), dlogp.len() / rows.len());
        par::for_each_part(logits, vocab, |first, logits| {
            for (i, logits) in (first / vocab..).zip(logits.chunks_exact_mut(vocab)) {
                let gradients = LogitGradient {
                    row: &rows[i],
                    logits,
                    targets: &self.targets[(start + i) * k..][..k],
                    dlogp: &dlogp[i * k..][..k],
                    dentropy: dentropy[i],
                    softcap: self.softcap,
                };
                lanes::run_kernel(gradients);
            }
        });
    }
}

/// Computes [`LogitRow::from_logits`].
pub(crate) struct RowOf<'a> {
    pub(crate) logits: &'a [f32],
    pub(crate) inverse: f32,
}

impl Kernel for RowOf<'_> {
    type Output = LogitRow;

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) -> LogitRow {
        LogitRow::from_logits(lanes, self.logits, self.inverse)
    }
}

/// Computes [`LogitRow::write_gradient`].
struct LogitGradient<'a> {
    row: &'a LogitRow,
    logits: &'a mut [f32],
    targets: &'a [u32],
    dlogp: &'a [f32],
    dentropy: f32,
    softcap: Option<f32>,
}

impl Kernel for LogitGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { row, logits, targets, dlogp, dentropy, softcap } = self;
        let Some(cap) = softcap else {
            return row.write_gradient(lanes, logits, targets, dlogp, dentropy);
        };
        let mut slopes = logits.to_vec();
        lanes.map_lanes(
            [],
            [&mut slopes],
            #[inline(always)]
            |[], [y]| [lanes.cap_slope(y, cap)],
        );
        row.write_gradient(lanes, logits, targets, dlogp, dentropy);
        lanes.map_lanes(
            [&slopes],
            [logits],
            #[inline(always)]
            |[slope], [grad]| [lanes.mul(grad, slope)],
        );
    }
}

/// Log-probs, entropies and softmax sums of one chunk's rows.
#[derive(Default)]
struct Outputs {
    logp: Vec<f32>,
    entropy: Vec<f32>,
    dlogp: Vec<f32>,
    dentropy: Vec<f32>,
    rows: Vec<LogitRow>,
}

impl Outputs {
    /// Sets the number of rows, and of the targets of a row.
    fn resize(&mut self, n: usize, k: usize) {
        self.rows.resize(n, LogitRow::default());
        let Self { logp, entropy, dlogp, dentropy, .. } = self;
        for (values, size) in [(logp, n * k), (entropy, n), (dlogp, n * k), (dentropy, n)] {
            values.clear();
            values.resize(size, 0.0);
        }
    }
}

/// Splits a range into pieces of at most `size`.
pub(crate) fn split_chunks(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(size).map(move |start| start..range.end.min(start + size))
}

/// Groups consecutive whole sequences of together at most `most` rows; at least one sequence a group.
pub(crate) fn group_sequences(
    offsets: &[usize],
    most: usize,
) -> impl Iterator<Item = Range<usize>> {
    let mut end = 0;
    std::iter::from_fn(move || {
        let start = end;
        let fits = offsets[start..].iter().take_while(|&&at| at - offsets[start] <= most).count();
        end = (start + fits - 1).max(start + 1);
        (end < offsets.len()).then_some(start..end)
    })
}

/// Computes log-probabilities `[n, k]` of `targets [n, k]`, and entropies `[n]`, under the softmax of `logits [n, vocab]` times
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
    let n = inv_temperature.len();
    let len = logits.len();
    assert!(vocab > 0 && len == n * vocab, "logprobs: logits have {len}, not [{n}, {vocab}]");
    check_targets("logprobs", targets, vocab);
    check_rows("logprobs", inv_temperature, targets, logp, entropy);
    all_rows(logits, targets, inv_temperature, logp, entropy, None);
}

/// Returns the number of rows of a chunk. A product of few rows mostly reads `w`; one of too many rows leaves the
/// cache.
fn chunk_rows(vocab: usize) -> usize {
    (CHUNK / vocab).clamp(128, 512)
}

fn all_rows(
    logits: &[f32],
    targets: &[u32],
    inv_temperature: &[f32],
    logp: &mut [f32],
    entropy: &mut [f32],
    rows: Option<&mut [LogitRow]>,
) {
    let n = inv_temperature.len().max(1);
    let (vocab, k) = (logits.len() / n, (targets.len() / n).max(1));
    let mut unread = Vec::new();
    let rows = rows.unwrap_or_else(|| {
        unread.resize(inv_temperature.len(), LogitRow::default());
        &mut unread
    });
    let given = RowInputs { logits, vocab, targets, inv_temperature };
    if par::worth_it(logits.len()) {
        let outputs = logp.par_chunks_mut(k).zip(entropy.par_iter_mut()).zip(rows);
        let outputs = outputs.with_min_len(par::GRAIN.div_ceil(vocab)).enumerate();
        outputs.for_each(|(i, ((logp, entropy), row))| given.fill_row(i, logp, entropy, row));
    } else {
        let outputs = logp.chunks_mut(k).zip(entropy.iter_mut()).zip(rows).enumerate();
        outputs.for_each(|(i, ((logp, entropy), row))| given.fill_row(i, logp, entropy, row));
    }
}

/// Inputs of some rows of [`logprobs`].
struct RowInputs<'a> {
    logits: &'a [f32],
    vocab: usize,
    targets: &'a [u32],
    inv_temperature: &'a [f32],
}

impl RowInputs<'_> {
    /// Computes a row: `logp` has a log-probability for each of its targets.
    fn fill_row(&self, i: usize, logp: &mut [f32], entropy: &mut f32, row: &mut LogitRow) {
        let logits = &self.logits[i * self.vocab..(i + 1) * self.vocab];
        *row = lanes::run_kernel(RowOf { logits, inverse: self.inv_temperature[i] });
        let targets = &self.targets[i * logp.len()..];
        for (logp, &target) in logp.iter_mut().zip(targets) {
            *logp = row.logp(logits[target as usize]);
        }
        *entropy = row.entropy() as f32;
    }
}

#[cfg(test)]
mod tests;

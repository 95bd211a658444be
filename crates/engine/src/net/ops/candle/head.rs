//! Log-probabilities and entropies of target tokens, and the loss of them. Shapes: `n` rows, `V` vocabulary, `D` width.

use std::ops::Range;

use candle_core::{Result, Tensor};

use super::matrix::Matrix;
use super::{Candle, CandleTensor, Done, add_gradient, join_rows};
use crate::net::gradients::Gradients;
use crate::net::linear::OutputHead;
use crate::net::ops::Targets;

/// Number of logits of a chunk of rows.
const LOGITS: usize = 1 << 21;
/// Least rows of a chunk: each adds `[V, D]` to the gradient of the head.
const LEAST_ROWS: usize = 256;

/// Distributions of rows of hidden states `[n, D]` with `k` targets each.
pub(super) struct TargetRows {
    /// Weight of the head, `[V, D]`.
    pub(super) weight: Matrix,
    /// Bound of the logits, if there is one.
    pub(super) softcap: Option<f64>,
    /// Inverse temperatures, `[n, 1]`.
    pub(super) inverse: Tensor,
    /// Targets, `[n, k]`.
    pub(super) targets: Tensor,
}

/// Results of rows.
pub(super) struct Scored {
    /// Log-probabilities of all tokens, `[n, V]`.
    pub(super) logs: Tensor,
    /// Derivatives of bounded logits, if they are bounded.
    pub(super) slopes: Option<Tensor>,
    /// Log-probabilities of the targets, `[n, k]`.
    pub(super) logp: Tensor,
    /// Entropies in nats, `[n, 1]`.
    pub(super) entropy: Tensor,
}

/// Bounds logits, and returns the derivatives too.
fn bound(logits: Tensor, softcap: Option<f64>) -> Result<(Tensor, Option<Tensor>)> {
    let Some(cap) = softcap else { return Ok((logits, None)) };
    let bounded = (logits / cap)?.tanh()?;
    Ok(((&bounded * cap)?, Some((1.0 - bounded.sqr()?)?)))
}

impl TargetRows {
    /// Computes `z = cap(h wᵀ) / T`, `log p = z − log Σ e^z` and `H = −Σ p log p`.
    pub(super) fn score(&self, h: &Tensor) -> Result<Scored> {
        let (logits, slopes) = bound(self.weight.times(h)?, self.softcap)?;
        let z = logits.broadcast_mul(&self.inverse)?;
        let z = z.broadcast_sub(&z.detach().max_keepdim(1)?)?;
        let logs = z.broadcast_sub(&z.exp()?.sum_keepdim(1)?.log()?)?;
        let entropy = (logs.exp()? * &logs)?.sum_keepdim(1)?.neg()?;
        let logp = logs.gather(&self.targets, 1)?;
        Ok(Scored { logs, slopes, logp, entropy })
    }

    /// Computes the gradient of the logits before the bound, `[n, V]`, from derivatives by log-probs `[n, k]` and entropies `[n, 1]`.
    ///
    /// ```text
    /// dz_v = Σ_t dlogp_t (1[v = t] − p_v) − dH p_v (log p_v + H)
    /// ```
    pub(super) fn back(
        &self,
        Scored { logs, slopes, entropy, .. }: &Scored,
        [dlogp, dentropy]: [&Tensor; 2],
    ) -> Result<Tensor> {
        let p = logs.exp()?;
        let pull = (&p * logs.broadcast_add(entropy)?)?;
        let dz =
            (p.broadcast_mul(&dlogp.sum_keepdim(1)?.neg()?)? - pull.broadcast_mul(dentropy)?)?;
        dz.scatter_add_set(&self.targets, dlogp, 1)?;
        let dz = dz.broadcast_mul(&self.inverse)?;
        slopes.as_ref().map_or(Ok(dz.clone()), |slopes| dz * slopes)
    }
}

/// Returns the number of rows of a chunk.
fn chunk_rows(vocab: usize) -> usize {
    (LOGITS / vocab.max(1)).max(LEAST_ROWS)
}

/// Splits rows into chunks.
fn chunks(rows: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    rows.clone().step_by(size).map(move |start| start..rows.end.min(start + size))
}

/// Groups consecutive whole sequences of together at most `most` rows; at least one sequence a group.
fn groups(offsets: &[usize], most: usize) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let first = start;
        (first + 1 < offsets.len()).then_some(())?;
        let fits = offsets[first + 1..].iter().take_while(|&&end| end - offsets[first] <= most);
        start = first + fits.count().max(1);
        Some(first..start)
    })
}

/// Reads numbers of any shape.
pub(super) fn read(of: &Tensor) -> Result<Vec<f32>> {
    of.flatten_all()?.to_vec1()
}

impl Candle {
    /// Returns the distributions of some rows.
    fn head_rows(
        &self,
        head: &OutputHead<Self>,
        of: Targets<'_>,
        rows: Range<usize>,
    ) -> Done<TargetRows> {
        let (n, softcap, each) = (rows.len(), head.softcap.map(f64::from), of.each());
        let inverse = self.upload(of.inv_temperature[rows.clone()].to_vec(), (n, 1))?;
        let ids = of.ids[rows.start * each..rows.end * each].to_vec();
        let targets = self.upload(ids, (n, each))?;
        Ok(TargetRows { weight: Matrix::of(head.map.weight())?, softcap, inverse, targets })
    }

    /// Computes log-probabilities and entropies of all rows.
    pub(super) fn score_rows(
        &self,
        hidden: &CandleTensor,
        head: &OutputHead<Self>,
        of: Targets<'_>,
    ) -> Done<[Vec<f32>; 2]> {
        let (vocab, width) = head.map.dims();
        let mut found = [Vec::new(), Vec::new()];
        if of.ids.is_empty() {
            return Ok(found);
        }
        let hidden = hidden.rows(width)?;
        for rows in chunks(0..of.inv_temperature.len(), chunk_rows(vocab)) {
            let h = hidden.narrow(0, rows.start, rows.len())?;
            let scored = self.head_rows(head, of, rows)?.score(&h)?;
            found[0].extend(read(&scored.logp)?);
            found[1].extend(read(&scored.entropy)?);
        }
        Ok(found)
    }

    /// Computes the gradient of the hidden states from a loss, and adds that of the head.
    pub(super) fn head_loss(
        &self,
        hidden: &CandleTensor,
        head: &OutputHead<Self>,
        of: Targets<'_>,
        offsets: &[usize],
        mut loss: impl FnMut(Range<usize>, [&[f32]; 2], [&mut [f32]; 2]) -> Done<()>,
        sums: &mut Gradients<'_, Self>,
    ) -> Done<Tensor> {
        let ((vocab, width), each) = (head.map.dims(), of.each());
        let (hidden, most, mut parts) = (hidden.rows(width)?, chunk_rows(vocab), Vec::new());
        // A head without rows has a gradient too.
        sums.mark_unused(head.map.weight().slot());
        for group in groups(offsets, most) {
            let all = offsets[group.start]..offsets[group.end];
            let mut scored = Vec::new();
            let mut found = [Vec::new(), Vec::new()];
            for rows in chunks(all.clone(), most) {
                let h = hidden.narrow(0, rows.start, rows.len())?;
                let of = self.head_rows(head, of, rows)?;
                let results = of.score(&h)?;
                found[0].extend(read(&results.logp)?);
                found[1].extend(read(&results.entropy)?);
                // Logits of a sequence that is longer than a chunk are computed again.
                scored.push((h, of, (all.len() <= most).then_some(results)));
            }
            let [mut dlogp, mut dentropy] = [each, 1].map(|each| vec![0.0; all.len() * each]);
            loss(group, found.each_ref().map(Vec::as_slice), [&mut dlogp, &mut dentropy])?;
            let mut start = 0;
            for (h, of, results) in scored {
                let rows = start..start + h.dim(0)?;
                start = rows.end;
                let results = results.map_or_else(|| of.score(&h), Ok)?;
                let dlogp = dlogp[rows.start * each..rows.end * each].to_vec();
                let dlogp = self.upload(dlogp, (rows.len(), each))?;
                let dentropy = self.upload(dentropy[rows.clone()].to_vec(), (rows.len(), 1))?;
                let dz = of.back(&results, [&dlogp, &dentropy])?;
                parts.push(of.weight.times_back(&dz)?);
                add_gradient(sums, head.map.weight(), || dz.t()?.matmul(&h))?;
            }
        }
        Ok(join_rows(&parts, width, &self.device)?)
    }

    /// Computes the logits `[rows, V]` of some rows of hidden states, and reads them.
    pub(super) fn row_logits(
        &self,
        hidden: &CandleTensor,
        rows: &[u32],
        head: &OutputHead<Self>,
    ) -> Done<Vec<f32>> {
        let (_, width) = head.map.dims();
        let picked =
            hidden.rows(width)?.index_select(&self.upload(rows.to_vec(), rows.len())?, 0)?;
        let logits = super::linear::forward(&head.map, &picked, None)?;
        let (logits, _) = bound(logits, head.softcap.map(f64::from))?;
        Ok(read(&logits)?)
    }
}

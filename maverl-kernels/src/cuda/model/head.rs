//! The head of a model: log-probabilities of targets and gradients of a loss, without the logits of all rows at once.

use std::ops::Range;

use super::products::Destination;
use crate::cuda::array::expect_length;
use crate::cuda::{DeviceArray, Kernels, Machine, Slice, SliceMut, SoftmaxRows};
use crate::logprob::{group_sequences, split_chunks};

/// Distributions `softmax((h wᵀ) / temperature)` with the same number `k` of target tokens each, usually one.
#[derive(Debug, Clone, Copy)]
pub struct HeadInput<'a> {
    /// Hidden states `[n, d]`; `d` is a multiple of 8.
    pub h: Slice<'a, u16>,
    /// Weight of the head, `[V, d]`.
    pub w: Slice<'a, u16>,
    /// Target tokens `[n, k]`, below `V`.
    pub targets: &'a [u32],
    /// Inverse temperatures `[n]`, positive.
    pub inverse_temperatures: &'a [f32],
    /// Rows of which logits are held at once.
    pub rows_at_once: usize,
}

impl HeadInput<'_> {
    /// Returns the number of targets of a row; 1 without rows.
    fn each(&self) -> usize {
        self.targets.len().checked_div(self.inverse_temperatures.len()).unwrap_or(1)
    }

    /// Returns rows, size of the vocabulary and width.
    #[track_caller]
    fn checked_shape(&self, name: &str) -> [usize; 3] {
        let n = self.inverse_temperatures.len();
        let d = self.h.len().checked_div(n).unwrap_or(8);
        assert!(d > 0 && d.is_multiple_of(8) && self.rows_at_once > 0, "{name}: rows of {d}");
        expect_length(name, "h", self.h.len(), n * d);
        expect_length(name, "w", self.w.len(), self.w.len() / d * d);
        expect_length(name, "targets", self.targets.len(), n * self.each());
        [n, self.w.len() / d, d]
    }
}

impl<M: Machine> Kernels<M> {
    /// Returns log-probabilities of targets `[n, k]`, and entropies `[n]`.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or a target is not below `V`.
    pub fn head_log_probabilities(&self, head: &HeadInput<'_>) -> Result<[Vec<f32>; 2], M::Error> {
        let [n, vocab, _] = head.checked_shape("log-probabilities of a head");
        let mut logits = self.new_array(head.rows_at_once.min(n) * vocab)?;
        let mut all = [Vec::with_capacity(n * head.each()), Vec::with_capacity(n)];
        for at in split_chunks(0..n, head.rows_at_once) {
            let rows = self.head_rows(head, at.clone(), &mut logits)?;
            let of = logits.as_slice().sub_slice(0..at.len() * vocab);
            let part = self.log_probabilities(of, &rows)?;
            all[0].extend(part.logp);
            all[1].extend(part.entropy);
        }
        Ok(all)
    }

    /// Computes the gradients of a loss of log-probabilities and entropies, as
    /// [`LmHead::loss_gradients`](crate::logprob::LmHead::loss_gradients): `loss` is called for some consecutive
    /// sequences at a time, sequence `s` being the rows `offsets[s]..offsets[s + 1]`. `dh [n, d]` is overwritten, in
    /// bf16; the gradient of the weight is added to `dw [V, d]`. The logits of a sequence are held together, also if it
    /// has more rows than are held at once.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails; within, the error that `loss` returns.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, a target is not below `V`, or `offsets` does not rise from 0 to `n`.
    pub fn head_loss<E>(
        &self,
        head: &HeadInput<'_>,
        offsets: &[usize],
        mut loss: impl FnMut(Range<usize>, [&[f32]; 2], [&mut [f32]; 2]) -> Result<(), E>,
        mut dh: SliceMut<'_, u16>,
        mut dw: Option<SliceMut<'_, f32>>,
    ) -> Result<Result<(), E>, M::Error> {
        let [n, vocab, d] = head.checked_shape("loss of a head");
        let ends = (offsets.first(), offsets.last());
        assert!(ends == (Some(&0), Some(&n)) && offsets.is_sorted(), "loss of a head: {ends:?}");
        expect_length("loss of a head", "dh", dh.len(), n * d);
        if let Some(dw) = &dw {
            expect_length("loss of a head", "dw", dw.len(), vocab * d);
        }
        let parts = group_sequences(offsets, head.rows_at_once);
        let parts = parts.map(|part| (offsets[part.start]..offsets[part.end], part));
        let parts: Vec<(Range<usize>, Range<usize>)> = parts.collect();
        let most = parts.iter().map(|(rows, _)| rows.len()).max().unwrap_or(0);
        let (mut logits, mut dlogits) =
            (self.new_array(most * vocab)?, self.new_array(most * vocab)?);
        for (at, part) in parts {
            let (count, here) = (at.len(), 0..at.len() * vocab);
            if at.is_empty() {
                continue;
            }
            let rows = self.head_rows(head, at.clone(), &mut logits)?;
            let of = logits.as_slice().sub_slice(here.clone());
            let found = self.log_probabilities(of, &rows)?;
            let (mut dlogp, mut dentropy) = (vec![0.0; count * head.each()], vec![0.0; count]);
            let given = [&found.logp[..], &found.entropy];
            if let Err(error) = loss(part, given, [&mut dlogp, &mut dentropy]) {
                return Ok(Err(error));
            }
            let to = dlogits.slice_mut().sub_slice(here.clone());
            self.logit_gradients(of, &rows, &found, [&dlogp, &dentropy], to)?;
            let (dlogits, span) = (dlogits.as_slice().sub_slice(here), at.start * d..at.end * d);
            let out = Destination::Bf16(dh.reborrow().sub_slice(span.clone())).into();
            self.linear_back(dlogits, head.w, [count, d, vocab], None, out)?;
            if let Some(dw) = &mut dw {
                let out = Destination::Add(dw.reborrow()).into();
                self.linear_back_weight(dlogits, head.h.sub_slice(span), [vocab, d, count], out)?;
            }
        }
        Ok(Ok(()))
    }

    /// Computes the logits of some rows into the front of `logits`, and copies their targets to the machine.
    fn head_rows(
        &self,
        head: &HeadInput<'_>,
        at: Range<usize>,
        logits: &mut DeviceArray<M, f32>,
    ) -> Result<SoftmaxRows<M>, M::Error> {
        let [_, vocab, d] = head.checked_shape("logits of a head");
        let h = head.h.sub_slice(at.start * d..at.end * d);
        let out = Destination::F32(logits.slice_mut().sub_slice(0..at.len() * vocab)).into();
        self.linear(h, head.w, [at.len(), vocab, d], None, out)?;
        let of = at.start * head.each()..at.end * head.each();
        self.softmax_rows(&head.targets[of], &head.inverse_temperatures[at])
    }
}

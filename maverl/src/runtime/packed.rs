//! Training rows as the model sees them: packed one after the other, without padding.

use maverl_kernels::embedding;
use maverl_kernels::sample::mix;

use crate::model::{Context, Decoder, ModelError, Pool, Rows};
use crate::runtime::Row;

/// Rows packed one after the other, and what the loss needs of each completion token.
pub(crate) struct Packed {
    ids: Vec<u32>,
    positions: Vec<u32>,
    offsets: Vec<usize>,
    /// Index into `ids` of the token *before* each completion token.
    before: Vec<u32>,
    /// Row `r`'s completion tokens are `completions[r]..completions[r + 1]`.
    pub(crate) completions: Vec<usize>,
    /// The completion tokens `[M]`.
    pub(crate) targets: Vec<u32>,
    /// Of each completion token.
    pub(crate) inv_temperature: Vec<f32>,
}

impl Packed {
    /// Packs rows; the last token of a row predicts nothing and is left out.
    pub(crate) fn new(rows: &[&Row]) -> Self {
        let (mut ids, mut positions, mut offsets) = (Vec::new(), Vec::new(), vec![0]);
        let (mut before, mut targets, mut inv_temperature) = (Vec::new(), Vec::new(), Vec::new());
        let mut completions = vec![0];
        for row in rows {
            let start = ids.len();
            ids.extend_from_slice(&row.prompt);
            ids.extend_from_slice(&row.completion[..row.completion.len() - 1]);
            positions.extend(0..(ids.len() - start) as u32);
            let first = start + row.prompt.len() - 1;
            before.extend((first..ids.len()).map(|at| at as u32));
            targets.extend_from_slice(&row.completion);
            inv_temperature
                .extend(std::iter::repeat_n(1.0 / row.temperature, row.completion.len()));
            offsets.push(ids.len());
            completions.push(targets.len());
        }
        Self { ids, positions, offsets, before, completions, targets, inv_temperature }
    }

    /// A number for each token, of its row (the first of these is row `first` of the minibatch) and its position alone.
    pub(crate) fn keys(&self, seed: u64, first: usize) -> Vec<u64> {
        let rows = self.offsets.windows(2).zip(first as u64..);
        let keys = rows.flat_map(|(span, row)| {
            let positions = &self.positions[span[0]..span[1]];
            positions.iter().map(move |&position| mix(mix(seed, row), u64::from(position)))
        });
        keys.collect()
    }

    /// What the decoder is given.
    pub(crate) fn rows(&self) -> Rows<'_> {
        Rows { ids: &self.ids, positions: &self.positions, offsets: &self.offsets }
    }

    /// Of hidden states `[N, D]` those that predict completion tokens, `[M, D]`.
    pub(crate) fn predicting(&self, hidden: &[f32]) -> Vec<f32> {
        let width = hidden.len() / self.ids.len();
        let mut picked = vec![0.0; self.before.len() * width];
        embedding::gather(hidden, &self.before, width, &mut picked);
        picked
    }

    /// The way back: `[M, D]` to `[N, D]`, zeros elsewhere.
    pub(crate) fn spread(&self, dpicked: &[f32]) -> Vec<f32> {
        let width = dpicked.len() / self.before.len();
        let mut dhidden = vec![0.0; self.ids.len() * width];
        for (&at, dpicked) in self.before.iter().zip(dpicked.chunks_exact(width)) {
            dhidden[at as usize * width..][..width].copy_from_slice(dpicked);
        }
        dhidden
    }

    /// Log-probs of the completion tokens, `[M]`.
    pub(crate) fn logprobs(
        &self,
        model: &Decoder,
        pool: &mut Pool,
    ) -> Result<Vec<f32>, ModelError> {
        let context = Context::Packed(&self.offsets);
        let hidden = model.forward(&self.ids, &self.positions, context, pool)?;
        let picked = self.predicting(&hidden);
        pool.give([hidden]);
        Ok(model.logprobs(&picked, &self.targets, &self.inv_temperature)?.0)
    }
}

/// How many rows each micro-batch takes: as many as fit the token budget, at least one.
pub(crate) fn micro_batches(rows: &[&Row], tokens: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = Vec::new();
    let mut used = 0;
    for row in rows {
        let length = row.prompt.len() + row.completion.len() - 1;
        if sizes.is_empty() || used + length > tokens {
            sizes.push(0);
            used = 0;
        }
        used += length;
        if let Some(size) = sizes.last_mut() {
            *size += 1;
        }
    }
    sizes
}

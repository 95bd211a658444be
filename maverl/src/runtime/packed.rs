//! Training rows as the model sees them: packed one after the other, without padding.

use std::sync::Arc;

use candle_core::Tensor;
use maverl_kernels::sample::mix;

use crate::model::{Context, Decoder, nn};
use crate::runtime::Row;

/// Rows packed one after the other, and what the loss needs of each completion token.
pub(crate) struct Packed {
    ids: Arc<[u32]>,
    positions: Arc<[u32]>,
    offsets: Arc<[usize]>,
    /// Index into `ids` of the token *before* each completion token.
    before: Arc<[u32]>,
    targets: Arc<[u32]>,
    inv_temperature: Arc<[f32]>,
}

impl Packed {
    /// Packs rows; the last token of a row predicts nothing and is left out.
    pub(crate) fn new(rows: &[&Row]) -> Self {
        let (mut ids, mut positions, mut offsets) = (Vec::new(), Vec::new(), vec![0]);
        let (mut before, mut targets, mut inv_temperature) = (Vec::new(), Vec::new(), Vec::new());
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
        }
        Self {
            ids: ids.into(),
            positions: positions.into(),
            offsets: offsets.into(),
            before: before.into(),
            targets: targets.into(),
            inv_temperature: inv_temperature.into(),
        }
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

    /// Log-probs and entropies of the completion tokens, `[2, M]`.
    pub(crate) fn logprobs(&self, model: &Decoder) -> candle_core::Result<Tensor> {
        let hidden = model.forward(&self.ids, &self.positions, Context::Packed(&self.offsets))?;
        let hidden = nn::pick(&hidden, &self.before)?;
        nn::token_logprobs(
            &hidden,
            model.head(),
            Arc::clone(&self.targets),
            Arc::clone(&self.inv_temperature),
        )
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

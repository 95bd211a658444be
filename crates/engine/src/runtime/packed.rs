//! Packing of training rows: one after the other, without padding.
//!
//! A prompt that several rows of a micro-batch begin with, such as that of a group, is stored once, before the replies.
//! Log-probs have the same bits as without this; the gradient is the same up to rounding.

use std::collections::{BTreeMap, BTreeSet};

use maverl_kernels::attention::Packing;
use maverl_kernels::sample::derive_seed;

use crate::files::ModelError;
use crate::net::ops::{Backend, Buffer, Targets};
use crate::net::{Context, Decoder, Pool, Rows};
use crate::runtime::{Row, ValueText};

/// Packed rows, and the inputs of the loss for each completion token. A prompt that several rows share is stored once,
/// followed by their completions.
#[derive(Default)]
pub(crate) struct PackedRows {
    ids: Vec<u32>,
    positions: Vec<u32>,
    offsets: Vec<usize>,
    /// Prefix row of each row.
    prefixes: Vec<Option<usize>>,
    /// Index in `ids` of the token *before* each completion token.
    before: Vec<u32>,
    /// Bounds of completions: row `r` has the completion tokens `completions[r]..completions[r + 1]`.
    pub(crate) completions: Vec<usize>,
    /// Completion tokens `[M]`.
    targets: Vec<u32>,
    /// Inverse temperature of each completion token.
    inv_temperature: Vec<f32>,
}

impl PackedRows {
    /// Packs rows. The last token of a row predicts nothing and is omitted.
    pub(crate) fn new(rows: &[&Row], share: bool) -> Self {
        let mut packed = Self { offsets: vec![0], completions: vec![0], ..Self::default() };
        let mut uses: BTreeMap<&[u32], usize> = BTreeMap::new();
        rows.iter().for_each(|row| *uses.entry(&row.prompt).or_default() += 1);
        // Row of a shared prompt, and the index of its last token.
        let mut shared: BTreeMap<&[u32], (usize, usize)> = BTreeMap::new();
        for row in rows {
            let (prompt, length) = (row.prompt.as_slice(), row.prompt.len());
            let own = &row.completion[..row.completion.len() - 1];
            let before = if share && uses[prompt] > 1 {
                let (prefix, last) =
                    *shared.entry(prompt).or_insert_with(|| packed.push([prompt, &[]], 0, None));
                let (_, end) = packed.push([&[], own], length, Some(prefix));
                [last..last + 1, end + 1 - own.len()..end + 1]
            } else {
                let (_, end) = packed.push([prompt, own], 0, None);
                [end - own.len()..end + 1, 0..0]
            };
            packed.before.extend(before.into_iter().flatten().map(|at| at as u32));
            packed.targets.extend_from_slice(&row.completion);
            let inverse = std::iter::repeat_n(1.0 / row.temperature, row.completion.len());
            packed.inv_temperature.extend(inverse);
            packed.completions.push(packed.targets.len());
        }
        packed
    }

    /// Adds a row of tokens at a position. Returns its number, and the index of its last token if it has one.
    fn push(
        &mut self,
        tokens: [&[u32]; 2],
        position: usize,
        prefix: Option<usize>,
    ) -> (usize, usize) {
        tokens.into_iter().for_each(|tokens| self.ids.extend_from_slice(tokens));
        let new = self.ids.len() - self.positions.len();
        self.positions.extend((position..position + new).map(|position| position as u32));
        self.offsets.push(self.ids.len());
        self.prefixes.push(prefix);
        (self.prefixes.len() - 1, self.ids.len() - 1)
    }

    /// Packs texts. Their last `places` tokens have values; targets are unused.
    pub(crate) fn texts<'a>(texts: impl Iterator<Item = &'a ValueText>) -> Self {
        let mut packed = Self { offsets: vec![0], ..Self::default() };
        for text in texts {
            let (_, last) = packed.push([&text.ids, &[]], 0, None);
            packed.before.extend((last + 1 - text.places..=last).map(|at| at as u32));
        }
        packed
    }

    /// Packs texts whose last `places` tokens are predicted. The last token of a text predicts nothing and is omitted.
    pub(crate) fn predicted_rows<'a>(texts: impl Iterator<Item = &'a ValueText>) -> Self {
        let mut packed = Self { offsets: vec![0], completions: vec![0], ..Self::default() };
        for ValueText { ids, places } in texts {
            let (_, last) = packed.push([&ids[..ids.len() - 1], &[]], 0, None);
            packed.before.extend((last + 1 - places..=last).map(|at| at as u32));
            packed.targets.extend_from_slice(&ids[ids.len() - places..]);
            packed.completions.push(packed.targets.len());
        }
        packed.inv_temperature = vec![1.0; packed.targets.len()];
        packed
    }

    /// Returns a key for each token of rows without shared prefixes. A key depends only on the row (the first one here
    /// is row `first` of the minibatch) and the position.
    pub(crate) fn keys(&self, seed: u64, first: usize) -> Vec<u64> {
        let rows = self.offsets.windows(2).zip(first as u64..);
        let keys = rows.flat_map(|(span, row)| {
            let positions = &self.positions[span[0]..span[1]];
            positions
                .iter()
                .map(move |&position| derive_seed(derive_seed(seed, row), u64::from(position)))
        });
        keys.collect()
    }

    /// Returns the input of the decoder.
    pub(crate) fn rows(&self) -> Rows<'_> {
        Rows { ids: &self.ids, positions: &self.positions, packing: self.packing() }
    }

    /// Returns the completion tokens as targets.
    pub(crate) fn predicted(&self) -> Targets<'_> {
        Targets { ids: &self.targets, inv_temperature: &self.inv_temperature }
    }

    fn packing(&self) -> Packing<'_> {
        Packing { offsets: &self.offsets, prefixes: &self.prefixes }
    }

    /// Selects the hidden states that predict completion tokens: `[N, D]` to `[M, D]`.
    pub(crate) fn predicting<O: Backend>(
        &self,
        ops: &O,
        hidden: &O::Act,
    ) -> Result<O::Act, ModelError> {
        ops.pick(hidden, hidden.len() / self.ids.len(), &self.before)
    }

    /// Computes the backward pass of `predicting`: `[M, D]` to `[N, D]`, zeros elsewhere.
    pub(crate) fn spread<O: Backend>(
        &self,
        ops: &O,
        dpicked: &O::Act,
    ) -> Result<O::Act, ModelError> {
        ops.spread(dpicked, &self.before, self.ids.len())
    }

    /// Computes the log-probs of the completion tokens, `[M]`.
    pub(crate) fn logprobs<O: Backend>(
        &self,
        model: &Decoder<O>,
        pool: &mut Pool<O>,
    ) -> Result<Vec<f32>, ModelError> {
        let context = Context::Packed(self.packing());
        let hidden = model.forward(&self.ids, &self.positions, context, pool)?;
        let picked = self.predicting(model.ops(), &hidden)?;
        pool.give([hidden]);
        Ok(model.logprobs(&picked, &self.targets, &self.inv_temperature)?.0)
    }
}

/// Returns the number of rows of each micro-batch from the lengths of the rows: as many as fit the budget, at least
/// one.
pub(crate) fn micro_batches(lengths: impl Iterator<Item = usize>, tokens: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = Vec::new();
    let mut used = 0;
    for length in lengths {
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

/// Computes [`micro_batches`] of rows, where rows with the same prompt share it.
pub(crate) fn row_batches(rows: &[&Row], tokens: usize, share: bool) -> Vec<usize> {
    let (mut sizes, mut used): (Vec<usize>, usize) = (Vec::new(), 0);
    let mut prompts: BTreeSet<&[u32]> = BTreeSet::new();
    for row in rows {
        let whole = row.prompt.len() + row.completion.len() - 1;
        // A row with a shared prompt adds only its completion, each token of which is a target.
        let more = if share && prompts.contains(row.prompt.as_slice()) {
            row.completion.len()
        } else {
            whole
        };
        used += more;
        match sizes.last_mut() {
            Some(size) if used <= tokens => *size += 1,
            _ => {
                sizes.push(1);
                used = whole;
                prompts.clear();
            }
        }
        prompts.insert(&row.prompt);
    }
    sizes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::files::{ModelFiles, ModelSource};
    use crate::loss::LossOptions;
    use crate::net::{Gradients, Model, Tape};

    fn row(prompt: &[u32], completion: &[u32]) -> Row {
        Row {
            prompt: prompt.to_vec(),
            completion: completion.to_vec(),
            logprobs: vec![0.0; completion.len()],
            advantages: vec![1.0; completion.len()],
            temperature: 0.7,
            loss: LossOptions::default(),
            ..Row::default()
        }
    }

    fn rows() -> Vec<Row> {
        let [a, b]: [Vec<u32>; 2] =
            [(0..21).map(|i| i * 7 % 90).collect(), (0..9).map(|i| i * 3 + 2).collect()];
        vec![
            row(&a, &[5, 6, 7, 8, 9]),
            row(&b, &[1, 2]),
            row(&a, &[4]),
            row(&[3, 1], &[44, 3, 9]),
            row(&a, &[5, 9, 11, 40, 2, 3, 1]),
            row(&b, &[8, 8, 8]),
        ]
    }

    #[test]
    fn a_shared_prompt_is_there_once() {
        let rows = rows();
        let rows: Vec<&Row> = rows.iter().collect();
        let (shared, apart) = (PackedRows::new(&rows, true), PackedRows::new(&rows, false));
        assert_eq!(apart.ids.len() - shared.ids.len(), 2 * 21 + 9);
        assert_eq!((&shared.targets, &shared.completions), (&apart.targets, &apart.completions));
        let before = |packed: &PackedRows| -> Vec<(u32, u32)> {
            let at = packed.before.iter().map(|&at| at as usize);
            at.map(|at| (packed.ids[at], packed.positions[at])).collect()
        };
        assert_eq!(before(&shared), before(&apart));
    }

    #[test]
    fn sharing_prompts_leaves_the_bits_of_log_probs_and_the_gradient() {
        let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
        let model = Model::load(&files).unwrap();
        let rows = rows();
        let rows: Vec<&Row> = rows.iter().collect();
        let mut pool = Pool::default();
        let [shared, apart] = [true, false].map(|share| {
            let packed = PackedRows::new(&rows, share);
            let logprobs = packed.logprobs(&model.decoder, &mut pool).unwrap();
            let mut gradients = Gradients::new(model.trainable());
            let tape = Tape::record(&model.decoder, packed.rows(), false, &mut pool).unwrap();
            let ops = model.decoder.ops();
            let hidden = packed.predicting(ops, tape.hidden()).unwrap();
            let loss = |_, _: [&[f32]; 2], [dlogp, _]: [&mut [f32]; 2]| {
                dlogp.fill(0.3);
                Ok(())
            };
            let (decoder, of) = (&model.decoder, packed.predicted());
            let d = decoder.loss(&hidden, of, &packed.completions, &mut gradients, loss).unwrap();
            let d = packed.spread(ops, &d).unwrap();
            tape.backward(&d, &mut gradients, &mut pool).unwrap();
            (logprobs, gradients.sums().unwrap().concat(), gradients.norm(ops).unwrap())
        });
        assert_eq!(shared.0, apart.0);
        for (a, b) in shared.1.iter().zip(&apart.1) {
            assert!(f64::from((a - b).abs()) < 1e-6 * apart.2, "{a} and {b}");
        }
    }

    #[test]
    fn micro_batches_count_a_shared_prompt_once() {
        let rows = rows();
        let rows: Vec<&Row> = rows.iter().collect();
        assert_eq!(row_batches(&rows, 1000, true), [6]);
        assert_eq!(row_batches(&rows, 36, true), [3, 2, 1]);
        assert_eq!(row_batches(&rows, 36, false), [2, 2, 1, 1]);
        assert_eq!(row_batches(&rows, 1, true), [1; 6]);
        for (share, tokens) in [(true, 36), (true, 50), (false, 40)] {
            let mut at = 0;
            for size in row_batches(&rows, tokens, share) {
                let packed = PackedRows::new(&rows[at..at + size], share);
                assert!(packed.ids.len() <= tokens && packed.targets.len() <= tokens);
                at += size;
            }
            assert_eq!(at, rows.len());
        }
    }
}

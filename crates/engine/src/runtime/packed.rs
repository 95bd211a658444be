//! Packing of training rows: a forest of their tokens, without padding, each common beginning once.
//!
//! Log-probs and values have the same bits as those of rows alone; the gradient is the same up to rounding.

mod top;

use std::borrow::Cow;
use std::ops::Range;

use maverl_kernels::sample::derive_seed;

use crate::files::ModelError;
use crate::message::Routes;
use crate::net::experts::PackedRoutes;
use crate::net::ops::{Backend, Buffer, Targets};
use crate::net::{Context, Decoder, Forest, PackedForest, Pool, Rows};
use crate::runtime::{Row, ValueText};

pub(crate) use top::Support;
pub use top::TopTokens;

/// Number of logits that are read at once.
const LOGITS: usize = 1 << 21;

/// Text of a pass, and what the pass computes of it: something after each of the last `places` tokens.
#[derive(Debug, Clone)]
pub(crate) struct PassText<'a> {
    /// Token ids.
    pub(crate) ids: Cow<'a, [u32]>,
    /// Number of the last tokens.
    pub(crate) places: usize,
    /// Tokens that are predicted, `[places]`; empty if none are.
    targets: &'a [u32],
    /// Tokens of a teacher that are predicted beside each of these, `[places, k]`; empty if none are.
    others: &'a [u32],
    inv_temperature: f32,
    /// Experts of the tokens, if a sampler chose them.
    pub(crate) routes: Option<&'a Routes>,
}

impl<'a> PassText<'a> {
    /// Returns the text of a row. Its last token predicts nothing and is omitted, unless the row has inputs of its own.
    pub(crate) fn of_row(row: &'a Row) -> Self {
        let Row { prompt, completion, inputs, temperature, .. } = row;
        let ids = if inputs.is_empty() {
            [prompt, &completion[..completion.len() - 1]].concat().into()
        } else {
            Cow::Borrowed(inputs.as_slice())
        };
        let (places, inv_temperature) = (completion.len(), 1.0 / temperature);
        let others = row.teacher.as_ref().map_or(&[][..], |teacher| &teacher.ids);
        let (targets, routes) = (completion, row.routes.as_ref());
        Self { ids, places, targets, others, inv_temperature, routes }
    }

    /// Returns a text with a value at each of its last `places` tokens.
    pub(crate) fn of_values(text: &'a ValueText) -> Self {
        let (ids, places) = (text.ids.as_slice().into(), text.places);
        Self { ids, places, targets: &[], others: &[], inv_temperature: 1.0, routes: None }
    }

    /// Returns a text whose last `places` tokens are predicted. The last one predicts nothing and is omitted.
    pub(crate) fn of_predicted(text: &'a ValueText) -> Self {
        let ValueText { ids, places } = text;
        let targets = &ids[ids.len() - places..];
        let ids = ids[..ids.len() - 1].into();
        Self { ids, places: *places, targets, others: &[], inv_temperature: 1.0, routes: None }
    }

    /// Returns a text of which the state after its last token is computed.
    pub(crate) fn of_state(ids: &'a [u32]) -> Self {
        let ids = ids.into();
        Self { ids, places: 1, targets: &[], others: &[], inv_temperature: 1.0, routes: None }
    }

    /// Returns the number of tokens of a teacher that are predicted in each place.
    fn support(&self) -> usize {
        self.others.len() / self.places.max(1)
    }
}

/// Packed texts, and their *entries*: the tokens after which something is computed. Several texts may have entries at one
/// token.
#[derive(Clone)]
pub(crate) struct PackedRows {
    forest: PackedForest,
    /// Index of each entry's token: in training, of the token before each completion token.
    before: Vec<u32>,
    /// Bounds of the entries of texts: text `r` has the entries `completions[r]..completions[r + 1]`.
    pub(crate) completions: Vec<usize>,
    /// Predicted tokens `[M]`.
    targets: Vec<u32>,
    /// Predicted tokens with those of teachers beside them, `[M, 1 + k]`, with the largest `k` of a text; empty if no text has
    /// a teacher. Others are filled up with the predicted token.
    tables: Vec<u32>,
    /// Inverse temperature of each predicted token.
    inv_temperature: Vec<f32>,
    /// Experts of the tokens, if samplers chose some.
    routes: Option<PackedRoutes>,
}

impl PackedRows {
    /// Packs texts. With `share`, a common beginning is stored once.
    pub(crate) fn new(texts: &[&PassText<'_>], share: bool) -> Self {
        let forest = Forest::of_texts(texts.iter().map(|text| &*text.ids), share).pack();
        let (mut before, mut completions) = (Vec::new(), vec![0]);
        let (mut targets, mut inv_temperature) = (Vec::new(), Vec::new());
        for (index, text) in texts.iter().enumerate() {
            let places = text.ids.len() - text.places..text.ids.len();
            before.extend(places.map(|position| forest.token_index(index, position) as u32));
            completions.push(before.len());
            targets.extend_from_slice(text.targets);
            inv_temperature.resize(targets.len(), text.inv_temperature);
        }
        let (routes, tables) = (pack_routes(texts, &forest), pack_tables(texts));
        Self { forest, before, completions, targets, tables, inv_temperature, routes }
    }

    /// Returns the experts of the tokens, if samplers chose some.
    pub(crate) fn routes(&self) -> Option<&PackedRoutes> {
        self.routes.as_ref()
    }

    /// Packs rows.
    #[cfg(any(test, feature = "cuda", feature = "candle"))]
    pub(crate) fn of_rows(rows: &[&Row], share: bool) -> Self {
        let texts: Vec<PassText<'_>> = rows.iter().map(|row| PassText::of_row(row)).collect();
        Self::new(&texts.iter().collect::<Vec<_>>(), share)
    }

    /// Returns the number of tokens that are computed.
    pub(crate) fn tokens(&self) -> usize {
        self.forest.ids.len()
    }

    /// Returns a key for each token of rows that share nothing. A key depends only on the number of the row in the
    /// minibatch, of which `rows` has one for each, and the position.
    pub(crate) fn keys(&self, seed: u64, rows: &[usize]) -> Vec<u64> {
        let Rows { positions, packing, .. } = self.rows();
        let rows = packing.offsets.windows(2).zip(rows);
        let keys = rows.flat_map(|(span, &row)| {
            let seed = derive_seed(seed, row as u64);
            let positions = &positions[span[0]..span[1]];
            positions.iter().map(move |&position| derive_seed(seed, u64::from(position)))
        });
        keys.collect()
    }

    /// Returns the sum of the weights of the texts with each token, `[N]`, from a weight of each text.
    pub(crate) fn count_texts(&self, weights: impl Iterator<Item = f32>) -> Vec<f32> {
        self.forest.count_texts(weights)
    }

    /// Returns the input of the decoder.
    pub(crate) fn rows(&self) -> Rows<'_> {
        self.forest.rows()
    }

    /// Returns the predicted tokens as targets, each with those of teachers after it.
    pub(crate) fn predicted(&self) -> Targets<'_> {
        let ids = if self.tables.is_empty() { &self.targets } else { &self.tables };
        Targets { ids, inv_temperature: &self.inv_temperature }
    }

    /// Selects the hidden states of the entries: `[N, D]` to `[M, D]`.
    pub(crate) fn predicting<O: Backend>(
        &self,
        ops: &O,
        hidden: &O::Act,
    ) -> Result<O::Act, ModelError> {
        ops.pick(hidden, hidden.len() / self.tokens(), &self.before)
    }

    /// Computes the backward pass of `predicting`: `[M, D]` to `[N, D]`, zeros elsewhere. Entries at one token are added in their
    /// order.
    pub(crate) fn spread<O: Backend>(
        &self,
        ops: &O,
        dpicked: &O::Act,
    ) -> Result<O::Act, ModelError> {
        ops.spread(dpicked, &self.before, self.tokens())
    }

    /// Computes the hidden states of the entries, `[M, D]`, with the experts that samplers chose.
    pub(crate) fn hidden<O: Backend>(
        &self,
        model: &Decoder<O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Act, ModelError> {
        let Rows { ids, positions, packing } = self.rows();
        let context = match &self.routes {
            None => Context::Packed(packing),
            Some(routes) => Context::Routed(packing, routes),
        };
        let hidden = model.forward(ids, positions, context, pool)?;
        let picked = self.predicting(model.ops(), &hidden)?;
        pool.give([hidden]);
        Ok(picked)
    }

    /// Returns the rows without the experts that samplers chose, for a model that did not sample them.
    #[must_use]
    pub(crate) fn unrouted(&self) -> Cow<'_, Self> {
        if self.routes.is_none() {
            Cow::Borrowed(self)
        } else {
            Cow::Owned(Self { routes: None, ..self.clone() })
        }
    }

    /// Computes the log-probs of the predicted tokens, `[M]`.
    pub(crate) fn logprobs<O: Backend>(
        &self,
        model: &Decoder<O>,
        pool: &mut Pool<O>,
    ) -> Result<Vec<f32>, ModelError> {
        let picked = self.hidden(model, pool)?;
        Ok(model.logprobs(&picked, &self.targets, &self.inv_temperature)?.0)
    }

    /// Computes the entropies in nats at the predicted tokens, `[M]`.
    pub(crate) fn entropies<O: Backend>(
        &self,
        model: &Decoder<O>,
        pool: &mut Pool<O>,
    ) -> Result<Vec<f32>, ModelError> {
        let picked = self.hidden(model, pool)?;
        Ok(model.logprobs(&picked, &self.targets, &self.inv_temperature)?.1)
    }

    /// Computes numbers of the tokens of a support at each entry: `[M, 2 k + 2]`, as [`TopTokens`] reads them. Logits of some
    /// entries at a time are read from the device.
    pub(crate) fn top_tokens<O: Backend>(
        &self,
        (model, vocab): (&Decoder<O>, usize),
        support: Support,
        pool: &mut Pool<O>,
    ) -> Result<Vec<f32>, ModelError> {
        let hidden = self.hidden(model, pool)?;
        let entries: Vec<u32> = (0..self.before.len() as u32).collect();
        let mut found = Vec::new();
        for rows in entries.chunks((LOGITS / vocab).max(1)) {
            let logits = model.read_logits(&hidden, rows, pool)?;
            let at = rows[0] as usize..rows[0] as usize + rows.len();
            let tokens = match support {
                Support::Top { k, among } => top::most_probable(&logits, vocab, (k, among)),
                Support::Given => self.given(at.clone()),
            };
            let of = (&self.targets[at.clone()], &self.inv_temperature[at]);
            found.extend(top::numbers(&logits, vocab, of, &tokens));
        }
        pool.give([hidden]);
        Ok(found)
    }

    /// Returns the tokens of teachers at entries, `[n, k]`.
    fn given(&self, entries: Range<usize>) -> Vec<u32> {
        let tables = self.tables.chunks_exact(self.tables.len() / self.targets.len());
        let own = tables.skip(entries.start).take(entries.len());
        own.flat_map(|table| &table[1..]).copied().collect()
    }

    /// Divides the numbers of the entries, `[M, D]`, among the texts.
    pub(crate) fn split_entries(&self, numbers: &[f32]) -> impl Iterator<Item = Vec<f32>> {
        let width = numbers.len() / self.before.len();
        let bounds = self.completions.windows(2);
        bounds.map(move |bounds| numbers[bounds[0] * width..bounds[1] * width].to_vec())
    }
}

/// Packs the predicted tokens with those of teachers; returns an empty list if no text has any.
fn pack_tables(texts: &[&PassText<'_>]) -> Vec<u32> {
    let most = texts.iter().map(|text| text.support()).max().unwrap_or(0);
    if most == 0 {
        return Vec::new();
    }
    let mut tables = Vec::new();
    for text in texts {
        let k = text.support();
        for (place, &target) in text.targets.iter().enumerate() {
            tables.push(target);
            tables.extend_from_slice(&text.others[place * k..(place + 1) * k]);
            tables.extend(std::iter::repeat_n(target, most - k));
        }
    }
    tables
}

/// Packs the experts that samplers chose for the tokens of texts that share none; `None` if there are none.
fn pack_routes(texts: &[&PassText<'_>], forest: &PackedForest) -> Option<PackedRoutes> {
    let width = texts.iter().find_map(|text| text.routes)?.width();
    let mut packed = PackedRoutes::none(forest.ids.len(), width);
    for (index, text) in texts.iter().enumerate() {
        if let Some(routes) = text.routes {
            packed.set(forest.token_index(index, 0), routes);
        }
    }
    Some(packed)
}

#[cfg(test)]
pub(crate) mod tests;

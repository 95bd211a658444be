//! Texts of a pass over a model: their order, their parts on ranks, and their micro-batches.

use std::ops::{AddAssign, Range};

use crate::files::ModelError;
use crate::net::Forest;
use crate::runtime::packed::{PackedRows, PassText};
use crate::runtime::peers::Peers;

/// Entries that a micro-batch has at most for each token of its budget. Texts that are equal add entries and no tokens.
const MOST_ENTRIES: usize = 4;

/// Texts that one pass computes.
pub(crate) struct PassTexts<'a> {
    texts: Vec<PassText<'a>>,
    /// Order of computation, in which texts with common beginnings are neighbors.
    order: Vec<usize>,
    /// True if texts share what they begin with.
    share: bool,
    /// Number of tokens if each is computed once.
    once: usize,
}

impl<'a> PassTexts<'a> {
    /// Creates the pass of texts. Experts that a sampler chose differ between texts, so such texts share nothing.
    pub(crate) fn new(texts: impl Iterator<Item = PassText<'a>>, share: bool) -> Self {
        let texts: Vec<PassText<'a>> = texts.collect();
        let share = share && texts.iter().all(|text| text.routes.is_none());
        let forest = Forest::of_texts(texts.iter().map(|text| &*text.ids), share);
        let (order, once) = (forest.text_order(), forest.tokens());
        Self { texts, order, share, once }
    }

    /// Returns the texts in the order of computation as units that one rank computes: of each, the number of texts and of
    /// tokens that they add to those before. Texts of a tree are one unit if it is small, so that ranks do not compute
    /// parts of it twice.
    pub(crate) fn rank_units(&self, ranks: usize) -> Vec<[usize; 2]> {
        let least = self.once / (4 * ranks);
        let (mut forest, mut trees) =
            (Forest::of_texts([], self.share), Vec::<Vec<[usize; 2]>>::new());
        for &index in &self.order {
            let before = forest.tokens();
            forest.add_text(&self.texts[index].ids);
            let unit = [1, forest.tokens() - before];
            match trees.get_mut(forest.last_tree()) {
                Some(tree) => tree.push(unit),
                None => trees.push(vec![unit]),
            }
        }
        let units = trees.into_iter().flat_map(|tree| {
            let tokens = tree.iter().map(|[_, tokens]| tokens).sum();
            if tokens < least { vec![[tree.len(), tokens]] } else { tree }
        });
        units.collect()
    }

    /// Cuts a range of the order of computation into micro-batches: the numbers of their texts. Each has as many texts as
    /// fit the budget of tokens, and at least one. It is a forest of its own, so a path that a cut divides is computed again.
    pub(crate) fn micro_batches(&self, own: Range<usize>, tokens: usize) -> Vec<&[usize]> {
        let (own, mut batches) = (&self.order[own], Vec::new());
        let (mut forest, mut entries, mut begin) = (Forest::of_texts([], self.share), 0, 0);
        for (at, &index) in own.iter().enumerate() {
            let PassText { ids, places, .. } = &self.texts[index];
            let more = forest.missing_tokens(ids);
            let fits = forest.tokens() + more <= tokens
                && entries + places <= MOST_ENTRIES.saturating_mul(tokens);
            if !fits && at > begin {
                batches.push(&own[begin..at]);
                (forest, entries, begin) = (Forest::of_texts([], self.share), 0, at);
            }
            forest.add_text(ids);
            entries += places;
        }
        if begin < own.len() {
            batches.push(&own[begin..]);
        }
        batches
    }

    /// Packs a micro-batch.
    pub(crate) fn pack(&self, micro: &[usize]) -> PackedRows {
        let texts: Vec<&PassText<'_>> = micro.iter().map(|&index| &self.texts[index]).collect();
        PackedRows::new(&texts, self.share)
    }

    /// Computes numbers for each text, in the order of the texts: those of its entries, each on one rank. `compute` gets a packed
    /// micro-batch and the numbers of its texts, and returns those of all its entries.
    pub(crate) fn lists(
        &self,
        peers: &Peers,
        tokens: usize,
        mut compute: impl FnMut(&PackedRows, &[usize]) -> Result<Vec<f32>, ModelError>,
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        let found = peers.lists(&self.rank_units(peers.size()), |own| {
            let mut all = Vec::with_capacity(own.len());
            for micro in self.micro_batches(own, tokens) {
                let packed = self.pack(micro);
                all.extend(packed.split_entries(&compute(&packed, micro)?));
            }
            Ok(all)
        })?;
        let mut lists = vec![Vec::new(); found.len()];
        self.order.iter().zip(found).for_each(|(&text, found)| lists[text] = found);
        Ok(lists)
    }

    /// Returns the numbers of tokens of the pass, before it computes any.
    pub(crate) fn counts(&self) -> PassTokens {
        let whole = self.texts.iter().map(|text| text.ids.len()).sum::<usize>() as u64;
        PassTokens { whole, once: self.once as u64, computed: 0 }
    }
}

/// Numbers of tokens of passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PassTokens {
    /// Sum of the lengths of the texts.
    pub(crate) whole: u64,
    /// Tokens if each of a pass is computed once.
    pub(crate) once: u64,
    /// Tokens that were computed.
    pub(crate) computed: u64,
}

impl AddAssign for PassTokens {
    fn add_assign(&mut self, other: Self) {
        self.whole += other.whole;
        self.once += other.once;
        self.computed += other.computed;
    }
}

#[cfg(test)]
mod tests;

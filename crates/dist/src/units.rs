//! Units of a model's parameters that are exchanged as a whole.

use std::fmt;
use std::ops::Range;

/// Logits at whose multiples a slice of the head may end: a piece of the product over the vocabulary.
const SLICE_ROWS: usize = 512;

/// A unit, or the part of one that is exchanged by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Rows of the embedding that the tokens of a rank need.
    Rows,
    /// The whole embedding, which is the head too if they are tied.
    Table,
    /// A layer; the last one has the last norm too.
    Layer(usize),
    /// A slice of the head.
    Slice(usize),
    /// The whole head, if it is not tied.
    Head,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows => f.write_str("rows of the embedding"),
            Self::Table => f.write_str("embedding"),
            Self::Layer(index) => write!(f, "layer {index}"),
            Self::Slice(index) => write!(f, "slice {index} of the head"),
            Self::Head => f.write_str("head"),
        }
    }
}

/// Parameters of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LayerSize {
    /// Parameters that are not trained.
    pub frozen: usize,
    /// Trained parameters: all, or those of adapters.
    pub trained: usize,
}

impl LayerSize {
    fn elements(self) -> usize {
        self.frozen + self.trained
    }
}

/// Sizes of the units of a model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnitSizes {
    /// Rows of the embedding and of the head.
    pub vocab: usize,
    /// Width of a row.
    pub width: usize,
    /// Layers; at least one.
    pub layers: Vec<LayerSize>,
    /// True if the embedding is the head.
    pub tied: bool,
    /// True if embedding and head are trained.
    pub tables_trained: bool,
    /// True if embedding and head are exchanged whole: not by rows and in slices.
    pub whole_tables: bool,
}

/// Content of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// Arrays that are exchanged one after the other, with their elements.
    Arrays(Vec<usize>),
    /// Rows of a width, at most so many for each rank.
    Rows {
        /// Number of rows.
        rows: usize,
        /// Elements of a row.
        width: usize,
    },
}

impl UnitSizes {
    /// Returns the number of parameters of a unit; those of the whole embedding for its rows.
    pub fn elements(&self, unit: Unit) -> usize {
        match unit {
            Unit::Rows | Unit::Table | Unit::Head => self.vocab * self.width,
            Unit::Layer(index) => self.layer(index).elements(),
            Unit::Slice(index) => {
                self.slices().get(index).map_or(0, |rows| rows.len() * self.width)
            }
        }
    }

    /// Returns the number of all parameters.
    pub fn parameters(&self) -> usize {
        self.whole().into_iter().map(|unit| self.elements(unit)).sum()
    }

    /// Returns the number of trained parameters.
    pub fn trained(&self) -> usize {
        let layers: usize = self.layers.iter().map(|layer| layer.trained).sum();
        let tables = if self.tied { 1 } else { 2 };
        let tables = if self.tables_trained { tables * self.vocab * self.width } else { 0 };
        layers + tables
    }

    /// Returns the number of parameters of the largest layer, which arrays for a unit in use have room for.
    pub fn largest(&self) -> usize {
        self.layers.iter().map(|layer| layer.elements()).max().unwrap_or(0)
    }

    /// Returns the number of trained parameters of the layer with most of them.
    pub fn largest_trained(&self) -> usize {
        self.layers.iter().map(|layer| layer.trained).max().unwrap_or(0)
    }

    /// Returns the largest number of parameters whose weights are in use at once, and of those whose sums of gradients are: of two
    /// layers, or with whole tables of a layer and the embedding, and of two layers and the embedding.
    pub fn in_use(&self) -> [usize; 2] {
        let [weights, sums] = [self.largest(), self.largest_trained()];
        if !self.whole_tables {
            return [2 * weights, 2 * sums];
        }
        let table = self.vocab * self.width;
        [weights + table, 2 * sums + if self.tables_trained { table } else { 0 }]
    }

    /// Returns the head as a unit: the embedding, if they are tied.
    pub(crate) fn head(&self) -> Unit {
        if self.tied { Unit::Table } else { Unit::Head }
    }

    /// Returns the units of the model, in order.
    pub fn whole(&self) -> Vec<Unit> {
        let layers = (0..self.layers.len()).map(Unit::Layer);
        let head = (!self.tied).then_some(Unit::Head);
        std::iter::once(Unit::Table).chain(layers).chain(head).collect()
    }

    /// Returns the rows of each slice of the head. A slice has no more parameters than the largest layer, but at least those
    /// of one piece of the product over the vocabulary.
    pub fn slices(&self) -> Vec<Range<usize>> {
        let fit = self.largest() / self.width.max(1);
        let rows = if fit >= self.vocab { self.vocab } else { fit / SLICE_ROWS * SLICE_ROWS };
        let rows = rows.max(SLICE_ROWS);
        let starts = (0..self.vocab).step_by(rows);
        starts.map(|start| start..(start + rows).min(self.vocab)).collect()
    }

    /// Returns what is gathered of a unit.
    pub(crate) fn weights(&self, unit: Unit) -> Content {
        match unit {
            Unit::Layer(index) => {
                let LayerSize { frozen, trained } = self.layer(index);
                Content::Arrays([frozen, trained].into_iter().filter(|&size| size > 0).collect())
            }
            _ => Content::Arrays(vec![self.elements(unit)]),
        }
    }

    /// Returns what is reduced of a unit; `None` if nothing of it is trained.
    pub(crate) fn sums(&self, unit: Unit) -> Option<Content> {
        let elements = match unit {
            Unit::Layer(index) => self.layer(index).trained,
            _ if self.tables_trained => self.elements(unit),
            _ => 0,
        };
        (elements > 0).then(|| Content::Arrays(vec![elements]))
    }

    /// Returns the rows of the embedding that a rank exchanges for its tokens at most.
    pub(crate) fn rows(&self, tokens: usize) -> Content {
        Content::Rows { rows: tokens.min(self.vocab), width: self.width }
    }

    fn layer(&self, index: usize) -> LayerSize {
        self.layers.get(index).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(vocab: usize, width: usize, layer: usize) -> UnitSizes {
        let layers = vec![LayerSize { frozen: 0, trained: layer }; 2];
        UnitSizes { vocab, width, layers, tied: false, tables_trained: true, whole_tables: false }
    }

    #[test]
    fn slices_of_the_head_cover_it_once_and_are_no_larger_than_a_layer() {
        for (vocab, width, layer) in
            [(152_064, 5120, 487_600_000), (5000, 64, 65_600), (700, 64, 1)]
        {
            let sizes = sizes(vocab, width, layer);
            let slices = sizes.slices();
            assert_eq!((slices[0].start, slices[slices.len() - 1].end), (0, vocab));
            assert!(slices.windows(2).all(|pair| pair[0].end == pair[1].start));
            let most = layer.max(SLICE_ROWS * width);
            assert!(slices.iter().all(|rows| rows.len() * width <= most), "{slices:?}");
        }
        // A head that fits is one slice, whatever its rows.
        let slices = sizes(700, 64, 700 * 64).slices();
        assert_eq!((slices.len(), slices[0].clone()), (1, 0..700));
    }

    #[test]
    fn parameters_are_those_of_all_units_and_a_tied_embedding_counts_once() {
        let mut sizes = sizes(1000, 16, 5000);
        assert_eq!((sizes.parameters(), sizes.trained()), (42_000, 42_000));
        sizes.tied = true;
        assert_eq!(sizes.parameters(), 26_000);
        sizes.tables_trained = false;
        sizes.layers[1] = LayerSize { frozen: 4900, trained: 100 };
        assert_eq!((sizes.parameters(), sizes.trained()), (26_000, 5100));
        assert_eq!((sizes.largest(), sizes.largest_trained()), (5000, 5000));
        assert_eq!(sizes.in_use(), [10_000, 10_000]);
        let whole = UnitSizes { whole_tables: true, ..sizes.clone() };
        assert_eq!(whole.in_use(), [21_000, 10_000]);
        assert_eq!(UnitSizes { tables_trained: true, ..whole }.in_use(), [21_000, 26_000]);
        assert_eq!(sizes.sums(Unit::Table), None);
        assert_eq!(sizes.weights(Unit::Layer(1)), Content::Arrays(vec![4900, 100]));
    }
}

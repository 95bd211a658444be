//! Works of a pass over a model, layer by layer, and what is exchanged for each.

use crate::units::{Content, Unit, UnitSizes};

/// Phases of a pass in which a unit is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The way forward.
    Forward,
    /// Maxima of logits, and logits of targets, of a slice of the head.
    Maxima,
    /// Sums of exponentials of a slice of the head.
    Sums,
    /// Gradients of a slice of the head.
    Gradients,
    /// Logits, loss and gradients of a head of one slice.
    Loss,
    /// The way forward again, and the way back.
    Backward,
    /// The optimizer.
    Update,
}

/// A work before its exchanges have a position.
#[derive(Debug, Clone)]
pub(crate) struct PlannedWork {
    pub(crate) unit: Unit,
    pub(crate) phase: Phase,
    pub(crate) round: usize,
    /// Weights that are gathered before it.
    pub(crate) gathered: Option<Content>,
    /// Sums that are reduced after it.
    pub(crate) reduced: Option<Content>,
}

/// Works of one round on some units.
struct Round<'u> {
    units: &'u UnitSizes,
    round: usize,
    tokens: usize,
}

/// Returns the works of a pass without gradients.
pub(crate) fn forward_pass(units: &UnitSizes, tokens: usize) -> Vec<PlannedWork> {
    let round = Round { units, round: 0, tokens };
    let mut works = round.forward();
    let head = round.slices();
    if head.len() == 1 {
        works.extend(head.iter().map(|&slice| round.work(slice, Phase::Forward)));
    } else {
        for phase in [Phase::Maxima, Phase::Sums] {
            works.extend(head.iter().map(|&slice| round.work(slice, phase)));
        }
    }
    works
}

/// Returns the works of a round of an optimizer step. After the third pass over the head the last layer comes again, as the head
/// used the arrays of its weights.
pub(crate) fn training_round(units: &UnitSizes, round: usize, tokens: usize) -> Vec<PlannedWork> {
    let round = Round { units, round, tokens };
    let mut works = round.forward();
    let head = round.slices();
    if head.len() == 1 {
        works.extend(head.iter().map(|&slice| round.reduced_work(slice, Phase::Loss)));
    } else {
        for phase in [Phase::Maxima, Phase::Sums] {
            works.extend(head.iter().map(|&slice| round.work(slice, phase)));
        }
        works.extend(head.iter().map(|&slice| round.reduced_work(slice, Phase::Gradients)));
    }
    let back = (0..units.layers.len()).rev();
    works.extend(back.map(|layer| round.reduced_work(Unit::Layer(layer), Phase::Backward)));
    if units.tables_trained {
        let work = if units.whole_tables {
            round.reduced_work(Unit::Table, Phase::Backward)
        } else {
            let reduced = Some(units.rows(tokens));
            PlannedWork { reduced, ..round.work(Unit::Rows, Phase::Backward) }
        };
        works.push(PlannedWork { gathered: None, ..work });
    }
    works
}

impl Round<'_> {
    /// Returns the embedding and the layers on the way forward.
    fn forward(&self) -> Vec<PlannedWork> {
        let embedding = if self.units.whole_tables {
            self.work(Unit::Table, Phase::Forward)
        } else {
            let rows = Some(self.units.rows(self.tokens));
            PlannedWork { gathered: rows, ..self.work(Unit::Rows, Phase::Forward) }
        };
        let layers = (0..self.units.layers.len()).map(Unit::Layer);
        let layers = layers.map(|layer| self.work(layer, Phase::Forward));
        std::iter::once(embedding).chain(layers).collect()
    }

    fn slices(&self) -> Vec<Unit> {
        if self.units.whole_tables {
            return vec![self.units.head()];
        }
        (0..self.units.slices().len()).map(Unit::Slice).collect()
    }

    fn work(&self, unit: Unit, phase: Phase) -> PlannedWork {
        let gathered = Some(self.units.weights(unit));
        PlannedWork { unit, phase, round: self.round, gathered, reduced: None }
    }

    fn reduced_work(&self, unit: Unit, phase: Phase) -> PlannedWork {
        PlannedWork { reduced: self.units.sums(unit), ..self.work(unit, phase) }
    }
}

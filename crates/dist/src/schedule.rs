//! The exchanges of a pass over a model whose parameters are divided among ranks, in their order.
//!
//! A list of exchanges depends on what all ranks have: the sizes of units, the kind of pass, and the largest number of rounds. A
//! rank without rows makes the same calls, and sends zeros. All micro-batches of a round go through a unit before the next one
//! is taken (layered accumulation, arXiv:2106.02679), so a unit is exchanged as often for one micro-batch as for many.
//!
//! While a unit is computed, the next one is gathered and the sums of the one before are reduced. There are two arrays for
//! weights and two for sums, which take turns: an exchange begins after the work before the last ([`Exchange::after`]), and a
//! work after its own weights are there and its sums are free ([`Work::after`]). So no rank is more than two units ahead.

use std::fmt;

use crate::Shard;
use crate::passes::{Phase, PlannedWork, forward_pass, training_round};
use crate::ranges::Machines;
use crate::steps::{Route, Step};
use crate::units::{Content, Unit, UnitSizes};

/// Bytes of a number in sums of gradients.
const SUM: usize = 4;

/// Passes over all rows of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// An optimizer step.
    Training {
        /// Largest number of rounds of a rank: micro-batches between two reductions.
        rounds: usize,
        /// Largest number of tokens of a rank in a round.
        tokens: usize,
    },
    /// A pass without gradients.
    Forward {
        /// Largest number of tokens of a rank.
        tokens: usize,
    },
    /// The weights of the whole model, for rollouts.
    Copy,
}

/// Kinds of exchanges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeKind {
    /// All ranks get the weights of a unit.
    Gather,
    /// The owners get the sums of a unit's gradients.
    Reduce,
    /// Ranks of equal local number get the new weights of each other.
    Spread,
}

/// One exchange of all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// Kind.
    pub kind: ExchangeKind,
    /// Unit that is exchanged.
    pub unit: Unit,
    /// Round, from 0.
    pub round: usize,
    /// Work of [`Schedule::works`] that must have ended before, if there is one.
    pub after: Option<usize>,
    content: Content,
}

/// Computation of a rank between two exchanges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Unit.
    pub unit: Unit,
    /// Phase.
    pub phase: Phase,
    /// Parameters of the unit.
    pub elements: usize,
    /// Exchange of [`Schedule::exchanges`] that must have ended before, with all before it.
    pub after: Option<usize>,
}

impl Work {
    /// Returns the number of products of the unit's parameters with all tokens of the round. Those of a frozen unit are fewer on
    /// the way back.
    pub fn products(&self) -> usize {
        match (self.unit, self.phase) {
            (Unit::Rows, _) | (_, Phase::Update) => 0,
            (Unit::Table, Phase::Forward | Phase::Backward) => 0,
            (_, Phase::Forward | Phase::Maxima | Phase::Sums) => 1,
            (_, Phase::Gradients | Phase::Loss | Phase::Backward) => 3,
        }
    }
}

/// The exchanges of a pass and the work between them, each in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Exchanges; the position of one is the same on all ranks.
    pub exchanges: Vec<Exchange>,
    /// Work of a rank.
    pub works: Vec<Work>,
    shard: Shard,
}

impl Schedule {
    /// Lists the exchanges of a pass under [`Shard::Full`] or [`Shard::Hybrid`]. With the other values every rank has all weights,
    /// and the list is empty.
    pub fn new(units: &UnitSizes, pass: Pass, shard: Shard) -> Self {
        let mut schedule = Self { exchanges: Vec::new(), works: Vec::new(), shard };
        if matches!(shard, Shard::None | Shard::Optimizer) {
            return schedule;
        }
        match pass {
            Pass::Training { rounds, tokens } => {
                let rounds = 0..rounds.max(1);
                let works = rounds.flat_map(|round| training_round(units, round, tokens));
                schedule.append(units, works.collect());
                schedule.end_step(units);
            }
            Pass::Forward { tokens } => schedule.append(units, forward_pass(units, tokens)),
            Pass::Copy => {
                let whole = units.whole().into_iter();
                let gathers = whole.map(|unit| gather(unit, 0, None, units.weights(unit)));
                schedule.exchanges.extend(gathers);
            }
        }
        schedule
    }

    /// Appends works and their exchanges. While work `k` runs, the weights of `k + 1` are gathered, and then the sums of `k - 1`
    /// reduced.
    fn append(&mut self, units: &UnitSizes, planned: Vec<PlannedWork>) {
        let mut after: Vec<Option<usize>> = Vec::new();
        for at in 0..planned.len() + 2 {
            let done = at.checked_sub(2);
            let next = planned.get(at);
            let mut awaited = None;
            if let Some(PlannedWork { unit, round, gathered: Some(weights), .. }) = next {
                awaited = Some(self.exchanges.len());
                self.exchanges.push(gather(*unit, *round, done, weights.clone()));
            }
            let before = done.and_then(|done| planned.get(done));
            if let Some(PlannedWork { unit, round, reduced: Some(sums), .. }) = before {
                if next.is_some_and(|next| next.reduced.is_some()) {
                    awaited = Some(self.exchanges.len());
                }
                let (kind, unit, round, content) =
                    (ExchangeKind::Reduce, *unit, *round, sums.clone());
                self.exchanges.push(Exchange { kind, unit, round, after: done, content });
            }
            after.push(awaited);
        }
        let works =
            planned.into_iter().zip(after).map(|(PlannedWork { unit, phase, .. }, after)| Work {
                unit,
                phase,
                elements: units.elements(unit),
                after,
            });
        self.works.extend(works);
    }

    /// Appends the optimizer, and under [`Shard::Hybrid`] the exchange of new weights between machines.
    fn end_step(&mut self, units: &UnitSizes) {
        let after = self.exchanges.len().checked_sub(1);
        let (unit, phase) = (Unit::Table, Phase::Update);
        self.works.push(Work { unit, phase, elements: units.trained(), after });
        if self.shard != Shard::Hybrid {
            return;
        }
        let (kind, after) = (ExchangeKind::Spread, Some(self.works.len() - 1));
        for unit in units.whole() {
            if let Some(content) = units.sums(unit) {
                self.exchanges.push(Exchange { kind, unit, round: 0, after, content });
            }
        }
    }

    /// Returns the division of the model.
    pub(crate) fn shard(&self) -> Shard {
        self.shard
    }

    /// Returns the bytes that a rank sends within its machine and to others. Weights have `weight` bytes.
    pub fn sent_bytes(&self, machines: &Machines, rank: usize, weight: usize) -> [usize; 2] {
        let mut bytes = [0; 2];
        for exchange in &self.exchanges {
            let width = exchange.width(weight);
            let steps = exchange.steps(machines, self.shard, rank);
            for (to, elements) in steps.iter().filter_map(Step::sent) {
                let across = machines.place(to).0 != machines.place(rank).0;
                bytes[usize::from(across)] += elements * width;
            }
        }
        bytes
    }

    /// Returns the number of messages that a rank sends.
    pub fn sent_messages(&self, machines: &Machines, rank: usize) -> usize {
        let exchanges = self.exchanges.iter();
        let steps = exchanges.flat_map(|exchange| exchange.steps(machines, self.shard, rank));
        steps.filter(|step| step.sent().is_some()).count()
    }

    /// Returns the steps of a rank in an exchange.
    pub(crate) fn steps(&self, position: usize, machines: &Machines, rank: usize) -> Vec<Step> {
        let exchange = self.exchanges.get(position);
        exchange.map_or_else(Vec::new, |exchange| exchange.steps(machines, self.shard, rank))
    }
}

impl Exchange {
    /// Returns the bytes of an element if weights have `weight`.
    pub(crate) fn width(&self, weight: usize) -> usize {
        if self.kind == ExchangeKind::Reduce { SUM } else { weight }
    }

    /// Returns the steps of a rank.
    fn steps(&self, machines: &Machines, shard: Shard, rank: usize) -> Vec<Step> {
        let routes = self.routes(machines, shard).into_iter();
        routes.flat_map(|(route, elements)| route.steps(machines, elements, rank)).collect()
    }

    /// Returns the route of each array, and its elements.
    pub(crate) fn routes(&self, machines: &Machines, shard: Shard) -> Vec<(Route, usize)> {
        let local = shard == Shard::Hybrid;
        let arrays = match &self.content {
            Content::Rows { rows, width } => {
                return vec![(Route::Scatter, rows.div_ceil(machines.ranks()) * width)];
            }
            Content::Arrays(arrays) => arrays,
        };
        let route = match self.kind {
            ExchangeKind::Gather if local => Route::GatherLocal,
            ExchangeKind::Gather => Route::Gather,
            ExchangeKind::Reduce => Route::Reduce,
            ExchangeKind::Spread => Route::Spread,
        };
        arrays.iter().map(|&elements| (route, elements)).collect()
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ExchangeKind::Gather => "gather",
            ExchangeKind::Reduce => "reduce",
            ExchangeKind::Spread => "spread",
        };
        write!(f, "{kind} {}", self.unit)
    }
}

fn gather(unit: Unit, round: usize, after: Option<usize>, content: Content) -> Exchange {
    Exchange { kind: ExchangeKind::Gather, unit, round, after, content }
}

#[cfg(test)]
mod tests;

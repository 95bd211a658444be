//! The units of a model in an optimizer step: weights and sums of those in use.

use std::collections::VecDeque;

use super::{ShardedModel, step};
use crate::files::ModelError;
use crate::net::gradients::require_all;
use crate::net::ops::Backend;
use crate::net::{Gradients, Params};
use crate::runtime::peers::lost_rank;
use maverl_dist::{ExchangeKind, Exchanges, Unit, Work};

/// Arrays that are kept for units of the same length: there are two for weights and two for sums in use.
const SPARE: usize = 2;

/// Passes of an optimizer step through the units.
pub(crate) struct UnitWalk<'s, O: Backend> {
    sharded: &'s ShardedModel<O>,
    /// Parameters of the model.
    params: &'s Params<O>,
    exchanges: Exchanges,
    /// Sums of units that wait for their reduction, with the numbers of the units.
    pending: VecDeque<(usize, O::Sums)>,
    /// Reduced sums of the parameters that this rank owns.
    own: O::Sums,
    /// True for each unit that has reduced sums.
    summed: Vec<bool>,
    /// True for each parameter that got a gradient.
    reached: Vec<bool>,
    weights: SpareArrays<O::Weights>,
    sums: SpareArrays<O::Sums>,
}

/// Arrays that are not in use, with their lengths.
struct SpareArrays<T>(Vec<(usize, T)>);

impl<T> SpareArrays<T> {
    fn take(&mut self, length: usize) -> Option<T> {
        let at = self.0.iter().position(|(of, _)| *of == length)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Keeps an array, and drops the one that was given first if there are more than [`SPARE`].
    fn give(&mut self, length: usize, array: T) {
        self.0.push((length, array));
        if self.0.len() > SPARE {
            self.0.remove(0);
        }
    }
}

impl<O: Backend> ShardedModel<O> {
    /// Begins the passes of an optimizer step. `params` are those of the model.
    pub(crate) fn walk<'s>(&'s self, params: &'s Params<O>) -> Result<UnitWalk<'s, O>, ModelError> {
        Ok(UnitWalk {
            sharded: self,
            params,
            exchanges: self.exchanges(step()),
            pending: VecDeque::new(),
            own: self.ops.sums(self.masters.elements())?,
            summed: vec![false; self.places.len()],
            reached: vec![false; params.vars().len()],
            weights: SpareArrays(Vec::new()),
            sums: SpareArrays(Vec::new()),
        })
    }
}

impl<'s, O: Backend> UnitWalk<'s, O> {
    /// Makes the exchanges that must have ended before a work, given by its position.
    pub(crate) fn before(&mut self, work: usize) -> Result<(), ModelError> {
        while let Some(exchange) = self.exchanges.due(work) {
            let unit = self.sharded.index(exchange.unit);
            match exchange.kind {
                ExchangeKind::Gather | ExchangeKind::Spread => self.gather(unit)?,
                ExchangeKind::Reduce => self.reduce()?,
            }
        }
        Ok(())
    }

    /// Creates gradients of zeros for the parameters of a unit.
    pub(crate) fn gradients(&mut self, unit: Unit) -> Result<Gradients<'s, O>, ModelError> {
        let place = &self.sharded.places[self.sharded.index(unit)];
        let sums = match self.sums.take(place.len()) {
            Some(zeros) => zeros,
            None => self.sharded.ops.sums(place.len())?,
        };
        Ok(Gradients::beginning_at(self.params, place.start, sums))
    }

    /// Ends a work: takes the gradients of its unit, if it has some, and frees its weights.
    pub(crate) fn after(
        &mut self,
        work: &Work,
        gradients: Option<Gradients<'s, O>>,
    ) -> Result<(), ModelError> {
        let unit = self.sharded.index(work.unit);
        if let Some(gradients) = gradients {
            let (sums, reached) = gradients.into_parts();
            self.reached.iter_mut().zip(reached).for_each(|(all, own)| *all |= own);
            self.pending.push_back((unit, sums));
        }
        let freed = self.sharded.units[unit].replace(self.sharded.ops.blank(0, true)?);
        let is_layer = matches!(work.unit, Unit::Layer(_));
        if is_layer {
            self.weights.give(self.sharded.places[unit].len(), freed);
        }
        Ok(())
    }

    /// Returns the sums of all ranks for the parameters that this rank owns.
    pub(crate) fn finish(mut self) -> Result<O::Sums, ModelError> {
        if let Some(channel) = self.sharded.peers.channel() {
            let mut reached: Vec<f32> = self.reached.iter().map(|&own| own.into()).collect();
            channel.all_reduce(&mut reached).map_err(lost_rank)?;
            self.reached = reached.into_iter().map(|ranks| ranks > 0.0).collect();
        }
        require_all(self.params, &self.reached)?;
        Ok(self.own)
    }

    /// Gathers the weights of a unit from all ranks.
    fn gather(&mut self, unit: usize) -> Result<(), ModelError> {
        let ShardedModel { ops, units, places, owned, masters, own_places, .. } = self.sharded;
        let length = places[unit].len();
        let mut array = match self.weights.take(length) {
            Some(array) => array,
            None => ops.blank(length, true)?,
        };
        let masters = masters.write();
        let own = ops.read_weights(&masters)?;
        let exchanges = &mut self.exchanges;
        ops.update_weights(&mut array, &mut |values| {
            values[owned[unit].clone()].copy_from_slice(&own[own_places[unit].clone()]);
            exchanges.make(values).map_err(lost_rank)
        })?;
        units[unit].replace(array);
        Ok(())
    }

    /// Reduces the sums of the unit that waits first, and adds those of this rank's range to its others.
    fn reduce(&mut self) -> Result<(), ModelError> {
        let ShardedModel { ops, places, owned, own_places, .. } = self.sharded;
        let waiting = self.pending.pop_front();
        let (unit, mut sums) = waiting.expect("a work before each reduction");
        let exchanges = &mut self.exchanges;
        ops.update_sums(&mut sums, &mut |values| exchanges.make(values).map_err(lost_rank))?;
        let reduced = ops.read_sums(&sums)?;
        let begun = std::mem::replace(&mut self.summed[unit], true);
        ops.update_sums(&mut self.own, &mut |own| {
            let to = &mut own[own_places[unit].clone()];
            let from = &reduced[owned[unit].clone()];
            if begun {
                to.iter_mut().zip(from).for_each(|(sum, value)| *sum += value);
            } else {
                to.copy_from_slice(from);
            }
            Ok(())
        })?;
        drop(reduced);
        if let Some(zeros) = ops.reuse(sums) {
            self.sums.give(places[unit].len(), zeros);
        }
        Ok(())
    }
}

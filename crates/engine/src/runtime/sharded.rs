//! Weights of a model that ranks divide (`dist.shard = "full"`, ZeRO-3: Rajbhandari et al., 2020, arXiv:1910.02054).
//!
//! A rank owns a range of each unit: masters, moments and sums of gradients of these parameters. Between updates the model has all
//! weights, gathered from all ranks, for rollouts, passes without gradients and checkpoints. They are freed before the passes of an
//! optimizer step, in which each unit is gathered before it is computed, and freed after it.
//!
//! Exchanges and computation take turns on one thread, in the order of a [`Schedule`].

mod walk;

use std::ops::Range;

use crate::files::ModelError;
use crate::net::ops::Backend;
use crate::net::{Decoder, Gradients, Model, Params, decoder_over, parts_in, unit_places};
use crate::runtime::peers::{Peers, lost_rank};
use maverl_dist::{Exchanges, LayerSize, Pass, Schedule, Shard, Unit, UnitSizes, Work};

/// Weights of a policy that ranks divide, beside the model with all of them.
pub(crate) struct ShardedModel<O: Backend> {
    ops: O,
    /// Decoder over the units.
    decoder: Decoder<O>,
    /// Weights of each unit, while it is in use.
    units: Vec<Params<O>>,
    sizes: UnitSizes,
    /// Place of each unit among all parameters.
    places: Vec<Range<usize>>,
    /// Range of each unit that this rank owns, in the unit.
    owned: Vec<Range<usize>>,
    /// Parameters that this rank owns: the ranges one after the other.
    masters: Params<O>,
    /// Place of each range there.
    own_places: Vec<Range<usize>>,
    peers: Peers,
    /// True while the model has all weights.
    whole: bool,
}

impl<O: Backend> ShardedModel<O> {
    /// Divides the weights of a model, which has all of them, among ranks.
    pub(crate) fn new(model: &Model<O>, peers: Peers) -> Result<Self, ModelError> {
        let (ops, params) = (model.decoder.ops().clone(), model.trainable());
        let places = unit_places(params);
        let units = params.split(&ops, &places)?;
        let decoder = decoder_over(&ops, &model.config, &units)?;
        let owned: Vec<Range<usize>> = peers
            .owned_of_units(params)
            .into_iter()
            .map(|ranks| ranks[peers.rank()].clone())
            .collect();
        let masters = Params::zeros(parts_in(params, &owned)).on(&ops, true)?;
        let mut end = 0;
        let own_places = owned.iter().map(|range| {
            end += range.len();
            end - range.len()..end
        });
        let own_places = own_places.collect();
        let sizes = unit_sizes(&places, model.config.tie_word_embeddings);
        let owned = owned.into_iter().zip(&places);
        let owned = owned.map(|(own, unit)| own.start - unit.start..own.end - unit.start).collect();
        let sharded = Self {
            ops,
            decoder,
            units,
            sizes,
            places,
            owned,
            masters,
            own_places,
            peers,
            whole: true,
        };
        sharded.take_masters(model)?;
        Ok(sharded)
    }

    /// Returns the decoder over the units.
    pub(crate) fn decoder(&self) -> &Decoder<O> {
        &self.decoder
    }

    /// Returns the parameters that this rank owns.
    pub(crate) fn masters(&self) -> &Params<O> {
        &self.masters
    }

    /// Takes the parameters that this rank owns from a model, which has all weights.
    pub(crate) fn take_masters(&self, model: &Model<O>) -> Result<(), ModelError> {
        let weights = model.trainable().write();
        let all = self.ops.read_weights(&weights)?;
        self.ops.update_weights(&mut self.masters.write(), &mut |masters| {
            for (at, to) in self.own_places.iter().enumerate() {
                let (own, unit) = (&self.owned[at], &self.places[at]);
                let from = unit.start + own.start..unit.start + own.end;
                masters[to.clone()].copy_from_slice(&all[from]);
            }
            Ok(())
        })
    }

    /// Gathers all weights of a model from all ranks, unless it has them.
    pub(crate) fn gather_whole(&mut self, model: &Model<O>) -> Result<(), ModelError> {
        if self.whole {
            return Ok(());
        }
        let mut exchanges = self.exchanges(Pass::Copy);
        let params = model.trainable();
        let masters = self.masters.write();
        let masters = self.ops.read_weights(&masters)?;
        let mut all = self.ops.blank(params.elements(), true)?;
        self.ops.update_weights(&mut all, &mut |all| {
            for (at, unit) in self.places.iter().enumerate() {
                let values = &mut all[unit.clone()];
                values[self.owned[at].clone()]
                    .copy_from_slice(&masters[self.own_places[at].clone()]);
                exchanges.make(values).map_err(lost_rank)?;
            }
            Ok(())
        })?;
        params.replace(all);
        self.whole = true;
        Ok(())
    }

    /// Frees the weights of a model.
    pub(crate) fn free_whole(&mut self, model: &Model<O>) -> Result<(), ModelError> {
        if self.whole {
            model.trainable().replace(self.ops.blank(0, true)?);
            self.whole = false;
        }
        Ok(())
    }

    /// Returns the norm of the gradients of all ranks, from those of this rank's parameters.
    pub(crate) fn norm(&self, gradients: &Gradients<'_, O>) -> Result<f64, ModelError> {
        let places = self.own_places.iter();
        let squares = places.map(|place| gradients.squares(&self.ops, place.clone()));
        self.peers.norm_of_squares(&squares.collect::<Result<Vec<f64>, _>>()?)
    }

    /// Returns the works of an optimizer step, which are those of all ranks.
    pub(crate) fn works(&self) -> Vec<Work> {
        self.schedule(step()).works
    }

    fn schedule(&self, pass: Pass) -> Schedule {
        Schedule::new(&self.sizes, pass, Shard::Full)
    }

    fn exchanges(&self, pass: Pass) -> Exchanges {
        Exchanges::new(self.peers.channel(), self.peers.machines(), self.schedule(pass))
    }

    /// Returns the number of a unit.
    fn index(&self, unit: Unit) -> usize {
        let layers = self.sizes.layers.len();
        match unit {
            Unit::Rows | Unit::Table => 0,
            Unit::Layer(index) => index + 1,
            Unit::Slice(_) | Unit::Head if self.sizes.tied => 0,
            Unit::Slice(_) | Unit::Head => layers + 1,
        }
    }
}

/// Returns the pass of an optimizer step, whose gradients are reduced once.
fn step() -> Pass {
    Pass::Training { rounds: 1, tokens: 0 }
}

/// Returns the sizes of units, from their places.
fn unit_sizes(places: &[Range<usize>], tied: bool) -> UnitSizes {
    let lengths: Vec<usize> = places.iter().map(Range::len).collect();
    let layers = &lengths[1..lengths.len() - usize::from(!tied)];
    let layers = layers.iter().map(|&trained| LayerSize { frozen: 0, trained }).collect();
    let (vocab, width) = (lengths[0], 1);
    UnitSizes { vocab, width, layers, tied, tables_trained: true, whole_tables: true }
}

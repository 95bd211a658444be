//! Loads of experts in an update.

use crate::files::{HfConfig, ModelError};
use crate::net::Model;
use crate::net::experts::RouterLoad;
use crate::net::ops::Backend;
use crate::runtime::packed::PackedRows;
use crate::runtime::peers::Peers;
use crate::runtime::{LayerLoad, RouterStats, Row};

/// Loads of the layers with experts.
#[derive(Debug, Clone, Default)]
pub(super) struct LayerLoads(Vec<(usize, RouterLoad)>);

impl LayerLoads {
    /// Returns loads of zero.
    pub(super) fn of_model(config: &HfConfig) -> Self {
        let layers = config.layers.iter().enumerate();
        let experts = layers.filter_map(|(index, layer)| {
            Some((index, RouterLoad::zero(layer.mlp.experts()?.router.experts)))
        });
        Self(experts.collect())
    }

    /// Adds the loads of a pass.
    pub(super) fn add(&mut self, loads: &[(usize, RouterLoad)]) {
        for (layer, load) in loads {
            match self.0.iter_mut().find(|(found, _)| found == layer) {
                Some((_, sum)) => *sum += load,
                None => self.0.push((*layer, load.clone())),
            }
        }
    }

    /// Adds the loads of the other ranks to those of a model.
    pub(super) fn add_ranks(self, config: &HfConfig, peers: &Peers) -> Result<Self, ModelError> {
        let mut own = Self::of_model(config);
        own.add(&self.0);
        let numbers: Vec<f64> = own.0.iter().flat_map(|(_, load)| load.numbers()).collect();
        let mut all = Self::default();
        for of_rank in peers.numbers(&numbers)? {
            let mut rest = &of_rank[..];
            for (layer, load) in &own.0 {
                let (first, after) = rest.split_at(load.numbers().count().min(rest.len()));
                rest = after;
                all.add(&[(*layer, RouterLoad::from_numbers(first))]);
            }
        }
        Ok(all)
    }

    /// Returns true if no layer has experts.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the load of all layers together.
    pub(super) fn sum(&self) -> RouterLoad {
        RouterLoad::sum(self.0.iter().map(|(_, load)| load))
    }
}

/// Loads of the optimizer steps of an update.
#[derive(Default)]
pub(super) struct RouterTotals {
    /// Loads of the step in progress.
    pub(super) step: LayerLoads,
    /// Sums over the steps before it.
    all: LayerLoads,
    /// Sum of the losses of these steps.
    balance_loss: f64,
}

impl RouterTotals {
    /// Ends an optimizer step, whose loads are those of all ranks.
    pub(super) fn end_step(&mut self) {
        let step = std::mem::take(&mut self.step);
        self.balance_loss += step.sum().balance_loss();
        self.all.add(&step.0);
    }

    /// Returns the statistics of an update, if the model has experts.
    pub(super) fn stats(&self, steps: f64) -> Option<RouterStats> {
        let layers = self.all.0.iter().map(|(layer, load)| layer_load(*layer, load));
        let layers: Vec<LayerLoad> = layers.collect();
        let balance_loss = self.balance_loss / steps;
        (!layers.is_empty()).then_some(RouterStats { balance_loss, layers })
    }
}

fn layer_load(layer: usize, load: &RouterLoad) -> LayerLoad {
    let (chosen, experts) = (load.chosen.iter().sum::<f64>(), load.chosen.len() as f64);
    let most = load.chosen.iter().copied().fold(0.0, f64::max);
    LayerLoad {
        layer,
        load_max: most * experts / chosen.max(1.0),
        router_entropy: load.entropy / load.tokens.max(1.0),
        dead_experts: load.chosen.iter().filter(|tokens| **tokens == 0.0).count() as u64,
        replay_changed: (load.replayed > 0.0).then(|| load.changed / load.replayed),
    }
}

/// Returns an error if rows have experts that are not those of a text and a model.
pub(super) fn check_routes<O: Backend>(model: &Model<O>, rows: &[Row]) -> Result<(), ModelError> {
    for (index, row) in rows.iter().enumerate() {
        let tokens = (row.prompt.len() + row.completion.len()).saturating_sub(1);
        let routes = row.routes.as_ref();
        if let Some(problem) = routes.and_then(|routes| routes.problem(&model.config, tokens)) {
            return Err(ModelError::wrong_argument(format!("row {index} has {problem}")));
        }
    }
    Ok(())
}

/// Returns the number of trained rows with each token of packed rows, if the model has experts.
pub(super) fn token_counts<O: Backend>(
    model: &Model<O>,
    packed: &PackedRows,
    rows: &[&Row],
) -> Option<Vec<f32>> {
    let experts = model.config.layers.iter().any(|layer| layer.mlp.experts().is_some());
    let weights = rows.iter().map(|row| if row.skipped { 0.0 } else { 1.0 });
    experts.then(|| packed.count_texts(weights))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_even_at_one_and_experts_without_tokens_are_dead() {
        let mut load = RouterLoad::zero(4);
        load.tokens = 6.0;
        load.chosen = vec![6.0, 3.0, 3.0, 0.0];
        load.entropy = 3.0;
        let found = layer_load(5, &load);
        let wanted = LayerLoad {
            layer: 5,
            load_max: 2.0,
            router_entropy: 0.5,
            dead_experts: 1,
            replay_changed: None,
        };
        assert_eq!(found, wanted);
        (load.replayed, load.changed) = (4.0, 1.0);
        assert_eq!(layer_load(5, &load).replay_changed, Some(0.25));
    }
}

//! `[task.curriculum]`: tasks that are drawn by how often they are solved.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// Curriculum by solve rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct CurriculumConfig {
    /// Pools of tasks by their solve rate, the lowest first: a task belongs to the first pool whose `up_to` is at least its rate, and
    /// is drawn in proportion to `weight`. A task that was not played yet has weight 1. An empty list plays all tasks equally often.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[setting(
        example = "[{ up_to = 0.0, weight = 0.2 }, { up_to = 0.8, weight = 1.0 }, { up_to = 1.0, weight = 0.1 }]"
    )]
    pub pools: Vec<SolvePool>,
    /// Weight of the former solve rate of a task when it is played again; that of the step has the rest.
    #[setting(default = 0.9, range = 0.0..1.0, idle_when = "pools = []")]
    pub memory: f64,
}

/// Tasks with similar solve rates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SolvePool {
    /// Largest solve rate of its tasks.
    pub up_to: f64,
    /// Weight of each of its tasks when tasks are drawn.
    pub weight: f64,
}

impl CurriculumConfig {
    /// Returns true if all keys have their defaults.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if tasks are drawn by their solve rates.
    pub(crate) fn is_used(&self) -> bool {
        !self.pools.is_empty()
    }

    /// Returns the number of the pool of a solve rate; that of the last one for a rate above all.
    pub(crate) fn pool(&self, rate: f64) -> usize {
        let found = self.pools.iter().position(|pool| rate <= pool.up_to);
        found.unwrap_or(self.pools.len().saturating_sub(1))
    }

    /// Returns the weight of a task by its solve rate, if it was played.
    pub(crate) fn weight(&self, rate: Option<f64>) -> f64 {
        rate.and_then(|rate| self.pools.get(self.pool(rate))).map_or(1.0, |pool| pool.weight)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::testing::{assert_close, learning, numbers};

    #[test]
    fn weights_of_tasks_are_the_recorded_ones() {
        let case = learning("task/curriculum");
        let pools = serde_json::from_value(case["inputs"]["pools"].clone()).unwrap();
        let curriculum = CurriculumConfig { pools, ..CurriculumConfig::default() };
        let rates = case["inputs"]["solve_rates"].as_array().unwrap();
        let weights: Vec<f64> = rates.iter().map(|rate| curriculum.weight(rate.as_f64())).collect();
        assert_close("weights", &weights, &numbers(&case["outputs"]["weights"]), 1e-12);
        let sum: f64 = weights.iter().sum();
        let shares: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
        assert_close("shares", &shares, &numbers(&case["outputs"]["shares"]), 1e-12);
        assert_eq!(CurriculumConfig::default().weight(Some(0.5)), 1.0);
    }
}

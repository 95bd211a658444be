//! Solve rates of tasks, and the order in which tasks are drawn by them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::CurriculumConfig;
use crate::rng::{SplitMix64, arrival_time};
use crate::task::TaskList;
use crate::trajectory::Episode;

/// Solve rate of each task that was played, by its source and its id.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct SolveRates(BTreeMap<String, BTreeMap<String, f64>>);

impl SolveRates {
    /// Returns true if no task was played.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the solve rate of a task, if it was played.
    pub(crate) fn of_task(&self, source: &str, id: &str) -> Option<f64> {
        self.0.get(source)?.get(id).copied()
    }

    /// Adds the scored episodes of a step.
    ///
    /// ```text
    /// s      share of the episodes of the task that solved it, in this step
    /// rate   s at first, then memory · rate + (1 − memory) · s
    /// ```
    pub(crate) fn add<'e>(&mut self, memory: f64, episodes: impl IntoIterator<Item = &'e Episode>) {
        let mut counts: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
        for episode in episodes {
            let Some(score) = episode.score() else { continue };
            let task = &episode.task;
            let name = (task.source.as_str(), task.id.as_str());
            let (solved, played) = counts.entry(name).or_default();
            *solved += u64::from(score.solved);
            *played += 1;
        }
        for ((source, id), (solved, played)) in counts {
            let share = solved as f64 / played as f64;
            let rates = self.0.entry(source.to_owned()).or_default();
            let rate = rates.get(id).map_or(share, |rate| memory * rate + (1.0 - memory) * share);
            rates.insert(id.to_owned(), rate);
        }
    }

    /// Returns the number of played tasks in each pool of a curriculum.
    pub(crate) fn pool_sizes(&self, curriculum: &CurriculumConfig) -> Vec<usize> {
        let mut sizes = vec![0; curriculum.pools.len()];
        for rate in self.0.values().flat_map(BTreeMap::values) {
            sizes[curriculum.pool(*rate)] += 1;
        }
        sizes
    }
}

/// A curriculum over tasks with known names.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Curriculum {
    config: CurriculumConfig,
    /// Source and id of each task.
    names: Vec<(String, String)>,
}

impl Curriculum {
    /// Returns the curriculum of a configuration, if it has one.
    pub(super) fn new(config: &CurriculumConfig, tasks: &TaskList) -> Option<Self> {
        let names = tasks.names().map(|(id, source)| (source.to_owned(), id.to_owned()));
        config.is_used().then(|| Self { config: config.clone(), names: names.collect() })
    }

    /// Returns tasks in the order in which they are drawn: without repetition, the next one in proportion to its weight among
    /// those that are left. Tasks with weight 0 are left out.
    ///
    /// The order is that of their [arrival times](arrival_time), which depend on the seed and on the place of the task alone.
    pub(super) fn order(&self, tasks: &[usize], seed: u64, rates: &SolveRates) -> Vec<usize> {
        let mut times = Vec::with_capacity(tasks.len());
        for &task in tasks {
            let (source, id) = &self.names[task];
            let weight = self.config.weight(rates.of_task(source, id));
            if weight > 0.0 {
                let own = seed ^ SplitMix64::new(task as u64).bits();
                times.push((arrival_time(own, weight), task));
            }
        }
        times.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        times.into_iter().map(|(_, task)| task).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::Map;

    use super::*;
    use crate::algo::testing::{episode, turn};
    use crate::config::SolvePool;
    use crate::task::Task;

    fn curriculum(tasks: usize, pools: &[(f64, f64)]) -> Curriculum {
        let pool = |&(up_to, weight): &(f64, f64)| SolvePool { up_to, weight };
        let pools = pools.iter().map(pool).collect();
        let config = CurriculumConfig { pools, ..CurriculumConfig::default() };
        let task = |i: usize| Task {
            id: i.to_string(),
            source: "data".to_owned(),
            question: "?".to_owned(),
            data: Map::new(),
        };
        Curriculum::new(&config, &(0..tasks).map(task).collect()).unwrap()
    }

    #[test]
    fn tasks_are_drawn_in_proportion_to_their_weights_and_never_with_weight_zero() {
        let curriculum = curriculum(4, &[(0.0, 0.0), (0.5, 3.0), (1.0, 0.5)]);
        let rates = |id: &str| match id {
            "0" => 0.0,
            "1" => 0.4,
            _ => 1.0,
        };
        let known: BTreeMap<String, f64> =
            ["0", "1", "2"].into_iter().map(|id| (id.to_owned(), rates(id))).collect();
        let rates = SolveRates([("data".to_owned(), known)].into());
        let mut first = [0.0_f64; 4];
        for seed in 0..4000 {
            let order = curriculum.order(&[0, 1, 2, 3], seed, &rates);
            assert_eq!(order.len(), 3);
            first[order[0]] += 1.0 / 4000.0;
        }
        // Weights 3, 0.5, and 1 for the task that was not played.
        for (found, wanted) in first.iter().zip([0.0, 3.0 / 4.5, 0.5 / 4.5, 1.0 / 4.5]) {
            assert!((found - wanted).abs() < 0.03, "{first:?}");
        }
    }

    #[test]
    fn rates_remember_earlier_steps_and_leave_out_what_is_unscored() {
        let solved = |name: &str, rewards: &[f64]| -> Vec<Episode> {
            let rewards = rewards.iter().enumerate();
            rewards.map(|(i, r)| episode(name, i as u32, *r, vec![turn("t/a", 0)])).collect()
        };
        let mut rates = SolveRates::default();
        assert!(rates.is_empty());
        let first = [solved("p", &[1.0, 0.0]), solved("q", &[1.0, 1.0])].concat();
        rates.add(0.75, &first);
        let of = |rates: &SolveRates, episode: &Episode| {
            rates.of_task(&episode.task.source, &episode.task.id).unwrap()
        };
        assert_eq!([of(&rates, &first[0]), of(&rates, &first[2])], [0.5, 1.0]);
        rates.add(0.75, &solved("p", &[1.0, 1.0]));
        assert_eq!(of(&rates, &first[0]), 0.625);
        let config = curriculum(1, &[(0.7, 1.0), (1.0, 0.0)]).config;
        assert_eq!(rates.pool_sizes(&config), [1, 1]);
        let kept: SolveRates =
            serde_json::from_str(&serde_json::to_string(&rates).unwrap()).unwrap();
        assert_eq!(kept, rates);
    }
}

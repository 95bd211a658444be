//! Selection of the tasks of a step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::curriculum::{Curriculum, SolveRates};
use crate::config::TaskConfig;
use crate::rng::SplitMix64;
use crate::task::{Task, TaskList};

/// Salt of the seeds of the components of replacements.
const MIXED: u64 = 0x6d69_7865_6400;

/// Iterates over the tasks in epochs, each with its own order, without omission or repetition. With several components,
/// each component has its own epochs and its share of every step.
///
/// A pure function of its fields and the step, so a resumed run needs only the number of its step. A step that exceeds
/// an epoch takes its remaining tasks from the next one.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampler {
    /// Seed of the order of every epoch.
    seed: u64,
    /// Number of tasks of a step.
    per_step: u64,
    /// Shuffles each epoch; otherwise the order of the tasks is kept.
    shuffle: bool,
    /// Number of steps after which tasks one level harder are added; 0 uses all levels from the start.
    every: u64,
    components: Vec<Component>,
    /// Weights of tasks by their solve rates, in place of epochs.
    curriculum: Option<Curriculum>,
}

/// Tasks of one component.
#[derive(Debug, Clone, PartialEq)]
struct Component {
    weight: f64,
    /// Indices, with the number of easier levels.
    tasks: Vec<(usize, u64)>,
}

impl Component {
    /// Returns the tasks with at most this number of easier levels.
    fn pool(&self, stage: u64) -> impl Iterator<Item = usize> {
        let pool = self.tasks.iter().filter(move |(_, rank)| *rank <= stage);
        pool.map(|(task, _)| *task)
    }
}

impl Sampler {
    /// Creates a sampler of a number of tasks of one component and one level.
    pub fn plain(config: &TaskConfig, seed: u64, tasks: usize) -> Self {
        let tasks = (0..tasks).map(|task| (task, 0)).collect();
        Self {
            seed,
            per_step: config.tasks_per_step.get() as u64,
            shuffle: config.shuffle,
            every: 0,
            components: vec![Component { weight: 1.0, tasks }],
            curriculum: None,
        }
    }

    /// Creates a sampler of tasks from [`crate::data::placed`], easier ones first if configured ([`Task::level`]).
    pub fn new(config: &TaskConfig, seed: u64, tasks: &TaskList) -> Self {
        let mut components: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (i, (_, source)) in tasks.names().enumerate() {
            let mixed = !config.mixture.is_empty();
            let component = if mixed { Task::component_of(source) } else { "" };
            components.entry(component).or_default().push(i);
        }
        let components = components.into_iter().map(|(name, indices)| {
            let weight = config.mixture.get(name).map_or(1.0, |component| component.weight);
            Component { weight, tasks: with_ranks(indices, tasks) }
        });
        let (every, components) = (config.harder_every, components.collect());
        let curriculum = Curriculum::new(&config.curriculum, tasks);
        Self { every, components, curriculum, ..Self::plain(config, seed, 0) }
    }

    /// Returns the indices of the tasks of a step, with a curriculum by the solve rates so far; `None` if a component has no task
    /// with a weight. A component with fewer tasks than its share plays them several times.
    pub(crate) fn step_by_rates(&self, step: u64, rates: &SolveRates) -> Option<Vec<usize>> {
        let Some(curriculum) = &self.curriculum else { return Some(self.step(step)) };
        let mut drawn = Vec::new();
        for (order, wanted) in self.orders(curriculum, step, rates) {
            if order.is_empty() && wanted > 0 {
                return None;
            }
            drawn.extend(order.into_iter().cycle().take(wanted));
        }
        Some(drawn)
    }

    /// Returns the tasks that replace those of a step without a learning signal, with a curriculum by the solve rates so far.
    pub(crate) fn others_by_rates(&self, step: u64, rates: &SolveRates) -> Vec<usize> {
        let Some(curriculum) = &self.curriculum else { return self.others(step) };
        let orders = self.orders(curriculum, step, rates).into_iter();
        let left = orders.map(|(order, wanted)| order.into_iter().skip(wanted).collect());
        self.mixed(left.collect(), step)
    }

    /// Returns the tasks of each component in the order of a curriculum, and the number that a step plays of them.
    fn orders(
        &self,
        curriculum: &Curriculum,
        step: u64,
        rates: &SolveRates,
    ) -> Vec<(Vec<usize>, usize)> {
        let seed = SplitMix64::new(self.seed).bits() ^ SplitMix64::new(!step).bits();
        let shares = self.shares(step).into_iter().zip(self.shares(step + 1));
        let components = self.components.iter().zip(shares);
        let ordered = components.map(|(component, (from, to))| {
            let tasks: Vec<usize> = component.tasks.iter().map(|(task, _)| *task).collect();
            (curriculum.order(&tasks, seed, rates), (to - from) as usize)
        });
        ordered.collect()
    }

    /// Returns the indices of the tasks of a step. Steps count from 0.
    ///
    /// # Panics
    ///
    /// If there are no tasks; loading rejects that.
    pub fn step(&self, step: u64) -> Vec<usize> {
        // Each stage starts a new epoch of its tasks.
        let stage = self.stage(step);
        let before = if self.every == 0 { 0 } else { stage * self.every };
        let (from, to) = (self.shares(step - before), self.shares(step - before + 1));
        let components = self.components.iter().zip(from.into_iter().zip(to)).enumerate();
        let drawn = components.flat_map(|(number, (component, (from, to)))| {
            let stages = if self.every == 0 { 0 } else { stage };
            let salt = (number as u64) << 32 | stages;
            let seed = if salt == 0 { self.seed } else { self.seed ^ SplitMix64::new(salt).bits() };
            let pool: Vec<usize> = component.pool(stage).collect();
            through(&pool, from..to, seed, self.shuffle)
        });
        drawn.collect()
    }

    /// Returns the tasks that a step does not use, in an order of their own: replacements for tasks without a learning
    /// signal. They are of the levels of the step, and the component of each is drawn by weight.
    pub fn others(&self, step: u64) -> Vec<usize> {
        let used: BTreeSet<usize> = self.step(step).into_iter().collect();
        let stage = self.stage(step);
        let mut components: BTreeMap<usize, usize> = BTreeMap::new();
        for (number, component) in self.components.iter().enumerate() {
            components.extend(component.pool(stage).map(|task| (task, number)));
        }
        let others = components.keys().filter(|task| !used.contains(*task));
        let mut others: Vec<usize> = others.copied().collect();
        let seed = SplitMix64::new(self.seed).bits() ^ SplitMix64::new(step).bits();
        SplitMix64::new(seed).shuffle(&mut others);
        let mut left = vec![Vec::new(); self.components.len()];
        for task in others {
            left[components[&task]].push(task);
        }
        self.mixed(left, step)
    }

    /// Returns the number of easier levels of the hardest tasks of a step.
    fn stage(&self, step: u64) -> u64 {
        let hardest =
            self.components.iter().flat_map(|component| &component.tasks).map(|task| task.1).max();
        let hardest = hardest.expect("there are tasks to draw from: loading refuses none");
        step.checked_div(self.every).map_or(hardest, |stage| stage.min(hardest))
    }

    /// Returns the tasks that are left of each component in one order: the component of the next task is drawn by weight among
    /// those that have one, so that any number of the first tasks has the shares of the mixture in the mean.
    fn mixed(&self, left: Vec<Vec<usize>>, step: u64) -> Vec<usize> {
        let seed = SplitMix64::new(self.seed ^ MIXED).bits() ^ SplitMix64::new(step).bits();
        let (mut draw, mut mixed) = (SplitMix64::new(seed), Vec::new());
        let left = left.into_iter().map(VecDeque::from);
        let mut left: Vec<(f64, VecDeque<usize>)> =
            self.components.iter().map(|component| component.weight).zip(left).collect();
        loop {
            left.retain(|(_, tasks)| !tasks.is_empty());
            let weights: Vec<f64> = left.iter().map(|(weight, _)| *weight).collect();
            let Some(next) = by_weight(&weights, &mut draw) else { return mixed };
            mixed.extend(left[next].1.pop_front());
        }
    }

    /// Computes the number of tasks of each component in a number of steps, by weight (Webster's method, under which no
    /// share ever shrinks).
    fn shares(&self, steps: u64) -> Vec<u64> {
        let mut shares = vec![0_u64; self.components.len()];
        if let [all] = shares.as_mut_slice() {
            *all = steps * self.per_step;
            return shares;
        }
        for _ in 0..steps * self.per_step {
            let claims = self.components.iter().zip(&shares);
            let claims = claims.map(|(it, share)| it.weight / (2 * share + 1) as f64).enumerate();
            let next = claims.reduce(|a, b| if b.1 > a.1 { b } else { a });
            let (next, _) = next.expect("there are components, as there are tasks");
            shares[next] += 1;
        }
        shares
    }
}

/// Draws the number of one of several weights, in proportion to them; `None` without any.
fn by_weight(weights: &[f64], draw: &mut SplitMix64) -> Option<usize> {
    // The last one has probability 1.
    let is_next = |at: &usize| draw.gen_bool(weights[*at] / weights[*at..].iter().sum::<f64>());
    (0..weights.len()).find(is_next)
}

/// Returns the tasks at a range of positions in the epochs of a pool.
fn through(pool: &[usize], positions: Range<u64>, seed: u64, shuffle: bool) -> Vec<usize> {
    let n = pool.len() as u64;
    let mut epoch = (0, order(pool, 0, seed, shuffle));
    positions
        .map(|position| {
            if position / n != epoch.0 {
                epoch = (position / n, order(pool, position / n, seed, shuffle));
            }
            epoch.1[(position % n) as usize]
        })
        .collect()
}

/// Returns tasks with their numbers of easier levels.
fn with_ranks(indices: Vec<usize>, tasks: &TaskList) -> Vec<(usize, u64)> {
    if !tasks.keys().contains("level") {
        return indices.into_iter().map(|i| (i, 0)).collect();
    }
    let own: Vec<Option<u64>> = indices.iter().map(|i| tasks.task(*i).level()).collect();
    let levels: BTreeSet<Option<u64>> = own.iter().copied().collect();
    let ranked = indices.into_iter().zip(own);
    ranked.map(|(i, level)| (i, levels.range(..level).count() as u64)).collect()
}

/// Returns the order of an epoch.
fn order(pool: &[usize], epoch: u64, seed: u64, shuffle: bool) -> Vec<usize> {
    let mut order = pool.to_vec();
    if shuffle {
        // Seeds of neighboring epochs must not be neighbors in one stream.
        let seed = SplitMix64::new(seed).bits() ^ SplitMix64::new(!epoch).bits();
        SplitMix64::new(seed).shuffle(&mut order);
    }
    order
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::num::NonZeroUsize;

    use proptest::prelude::*;
    use serde_json::{Map, json};

    use super::*;
    use crate::algo::testing::episode;
    use crate::config::{ComponentConfig, CurriculumConfig, SolvePool};

    fn sampler(seed: u64, tasks: usize, per_step: usize, shuffle: bool) -> Sampler {
        let tasks_per_step = NonZeroUsize::MIN.saturating_add(per_step - 1);
        let config = TaskConfig { tasks_per_step, shuffle, ..TaskConfig::default() };
        Sampler::plain(&config, seed, tasks)
    }

    proptest! {
        #[test]
        fn every_epoch_uses_every_task_once(
            seed: u64, tasks in 1_usize..40, per_step in 1_usize..50, shuffle: bool
        ) {
            let sampler = sampler(seed, tasks, per_step, shuffle);
            let steps = 3 * tasks as u64;
            let drawn: Vec<usize> = (0..steps).flat_map(|step| sampler.step(step)).collect();
            let (mut used, others) = (sampler.step(7), sampler.others(7));
            prop_assert!(others.iter().all(|task| !used.contains(task)));
            used.extend(others);
            prop_assert_eq!(used.into_iter().collect::<BTreeSet<_>>().len(), tasks);
            for epoch in drawn.chunks_exact(tasks) {
                prop_assert_eq!(epoch.iter().collect::<BTreeSet<_>>().len(), tasks);
            }
            if !shuffle {
                prop_assert!(drawn.iter().enumerate().all(|(i, &task)| task == i % tasks));
            }
        }

        #[test]
        fn a_step_depends_on_nothing_but_its_number(seed: u64, step in 0_u64..1_000_000) {
            let sampler = sampler(seed, 17, 5, true);
            prop_assert_eq!(sampler.step(step), sampler.step(step));
            prop_assert_eq!(sampler.step(step).len(), 5);
        }
    }

    #[test]
    fn epochs_and_seeds_differ_in_order() {
        let order = |seed, epoch| sampler(seed, 20, 20, true).step(epoch);
        let orders: BTreeSet<Vec<usize>> =
            (0..4).flat_map(|seed| (0..4).map(move |epoch| order(seed, epoch))).collect();
        assert_eq!(orders.len(), 16);
    }

    /// Returns six tasks of each component, of levels 1 and 5.
    fn tasks(components: &[&str]) -> TaskList {
        let one = |(i, component): (usize, &&str)| Task {
            id: i.to_string(),
            source: format!("{component}/data"),
            question: "?".to_owned(),
            data: Map::from_iter([(
                "level".to_owned(),
                if i % 2 == 0 { json!(1) } else { json!("Level 5") },
            )]),
        };
        components.iter().flat_map(|component| [component; 6]).enumerate().map(one).collect()
    }

    #[test]
    fn worlds_get_their_shares_and_all_their_tasks() {
        let component = |weight| ComponentConfig { weight, ..ComponentConfig::default() };
        let components =
            BTreeMap::from([("a".to_owned(), component(3.0)), ("b".to_owned(), component(1.0))]);
        let tasks_per_step = NonZeroUsize::MIN.saturating_add(3);
        let config = TaskConfig { tasks_per_step, mixture: components, ..TaskConfig::default() };
        let tasks = tasks(&["a", "b"]);
        let sampler = Sampler::new(&config, 3, &tasks);
        let steps: Vec<Vec<usize>> = (0..6).map(|step| sampler.step(step)).collect();
        let of_a = |step: &Vec<usize>| step.iter().filter(|task| **task < 6).count();
        assert_eq!(steps.iter().map(of_a).collect::<Vec<_>>(), [3; 6]);
        // 18 samples of 6 tasks are 3 epochs; 6 of 6 are one.
        let drawn: Vec<usize> = steps.into_iter().flatten().collect();
        for task in 0..12 {
            let times = drawn.iter().filter(|drawn| **drawn == task).count();
            assert_eq!(times, if task < 6 { 3 } else { 1 }, "{task}");
        }
        assert_eq!(sampler.others(0).len(), 8);
    }

    #[test]
    fn a_curriculum_draws_the_shares_of_components_without_repetition() {
        let component = |weight| ComponentConfig { weight, ..ComponentConfig::default() };
        let mixture =
            BTreeMap::from([("a".to_owned(), component(3.0)), ("b".to_owned(), component(1.0))]);
        let pools = [(0.5, 1.0), (1.0, 0.0)].map(|(up_to, weight)| SolvePool { up_to, weight });
        let curriculum = CurriculumConfig { pools: pools.into(), ..CurriculumConfig::default() };
        let tasks_per_step = NonZeroUsize::MIN.saturating_add(3);
        let config = TaskConfig { tasks_per_step, mixture, curriculum, ..TaskConfig::default() };
        let tasks = tasks(&["a", "b"]);
        let sampler = Sampler::new(&config, 3, &tasks);
        let mut rates = SolveRates::default();
        let solved = |task: usize| {
            let Task { id, source, .. } = tasks.task(task);
            let mut episode = episode(&id, 0, 1.0, Vec::new());
            episode.task.source = source;
            episode
        };
        for step in 0..9 {
            let drawn = sampler.step_by_rates(step, &rates).unwrap();
            assert_eq!(drawn, sampler.step_by_rates(step, &rates).unwrap());
            assert_eq!(drawn.iter().filter(|task| **task < 6).count(), 3, "{drawn:?}");
            let others = sampler.others_by_rates(step, &rates);
            let all: BTreeSet<usize> = drawn.iter().chain(&others).copied().collect();
            assert_eq!(all.len(), 12);
        }
        // Solved tasks are never drawn again; fewer tasks than the share are drawn several times.
        rates.add(0.9, &(0..5).map(solved).collect::<Vec<_>>());
        let drawn = sampler.step_by_rates(9, &rates).unwrap();
        assert_eq!(drawn[..3], [5, 5, 5]);
        assert!(sampler.others_by_rates(9, &rates).iter().all(|task| *task > 5));
        rates.add(0.9, &[solved(5)]);
        assert_eq!(sampler.step_by_rates(9, &rates), None);
    }

    #[test]
    fn replacements_are_of_each_component_by_weight_with_and_without_a_curriculum() {
        let component = |weight| ComponentConfig { weight, ..ComponentConfig::default() };
        let mixture =
            BTreeMap::from([("a".to_owned(), component(1.0)), ("b".to_owned(), component(3.0))]);
        let pools = vec![SolvePool { up_to: 1.0, weight: 0.5 }];
        let curriculum = CurriculumConfig { pools, ..CurriculumConfig::default() };
        for curriculum in [CurriculumConfig::default(), curriculum] {
            let mixture = mixture.clone();
            let tasks_per_step = NonZeroUsize::MIN.saturating_add(3);
            let config =
                TaskConfig { tasks_per_step, mixture, curriculum, ..TaskConfig::default() };
            let sampler = Sampler::new(&config, 3, &tasks(&["a", "b"]));
            let others = |step| sampler.others_by_rates(step, &SolveRates::default());
            // A step has one task of `a` and three of `b`, which leaves five and three.
            let first: Vec<usize> = (0..400).flat_map(|step| others(step)[..2].to_vec()).collect();
            let of_b = first.iter().filter(|task| **task >= 6).count();
            assert!((560..=640).contains(&of_b), "{of_b} of 800");
            let all: BTreeSet<usize> = others(5)
                .into_iter()
                .chain(sampler.step_by_rates(5, &SolveRates::default()).unwrap())
                .collect();
            assert_eq!(all.len(), 12);
        }
    }

    #[test]
    fn replacements_are_no_harder_than_the_tasks_of_their_step() {
        let tasks_per_step = NonZeroUsize::MIN;
        let config = TaskConfig { harder_every: 2, tasks_per_step, ..TaskConfig::default() };
        let sampler = Sampler::new(&config, 3, &tasks(&["a"]));
        let others = |step| sampler.others(step).iter().map(|task| task % 2).collect::<Vec<_>>();
        assert_eq!([0, 1].map(others), [[0; 2], [0; 2]]);
        assert_eq!((others(2).len(), others(2).iter().sum::<usize>() >= 2), (5, true));
    }

    #[test]
    fn harder_tasks_come_later_if_that_is_wanted() {
        let config = TaskConfig { harder_every: 2, ..TaskConfig::default() };
        let sampler = Sampler::new(&config, 3, &tasks(&["a"]));
        let hard = |step| sampler.step(step).iter().filter(|task| **task % 2 == 1).count();
        assert_eq!([0, 1].map(hard), [0, 0]);
        assert!([2, 3, 9].map(hard).iter().all(|n| (6..=10).contains(n)));
    }
}

//! Which tasks a step uses.

use std::collections::BTreeSet;

use crate::draw::Draw;

/// Goes through the tasks in epochs, each in an order of its own, without leaving any out or repeating one.
///
/// A pure function of its fields and the step, so a resumed run needs nothing but the number of its step. A step that
/// reaches over the end of an epoch takes its rest from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampler {
    /// From which the order of every epoch derives.
    pub seed: u64,
    /// How many tasks there are; not 0.
    pub tasks: usize,
    /// How many a step uses.
    pub per_step: usize,
    /// A new random order each epoch; else their own.
    pub shuffle: bool,
}

impl Sampler {
    /// Indices of the tasks of a step, counted from 0.
    ///
    /// # Panics
    ///
    /// If there are no tasks; loading refuses that.
    pub fn step(&self, step: u64) -> Vec<usize> {
        assert!(self.tasks > 0, "there are no tasks to draw from");
        let (n, size) = (self.tasks as u64, self.per_step as u64);
        let mut epoch = (0, self.order(0));
        (step * size..(step + 1) * size)
            .map(|position| {
                if position / n != epoch.0 {
                    epoch = (position / n, self.order(position / n));
                }
                epoch.1[(position % n) as usize]
            })
            .collect()
    }

    /// The tasks that a step does not use, in an order of its own: for tasks that turn out to teach nothing.
    pub fn others(&self, step: u64) -> Vec<usize> {
        let used: BTreeSet<usize> = self.step(step).into_iter().collect();
        let mut others: Vec<usize> = (0..self.tasks).filter(|task| !used.contains(task)).collect();
        let seed = Draw::new(self.seed).bits() ^ Draw::new(step).bits();
        Draw::new(seed).shuffle(&mut others);
        others
    }

    /// The order of an epoch.
    fn order(&self, epoch: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.tasks).collect();
        if self.shuffle {
            // Seeds of neighboring epochs must not be neighbors in one stream.
            let seed = Draw::new(self.seed).bits() ^ Draw::new(!epoch).bits();
            Draw::new(seed).shuffle(&mut order);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_epoch_uses_every_task_once(
            seed: u64, tasks in 1_usize..40, per_step in 1_usize..50, shuffle: bool
        ) {
            let sampler = Sampler { seed, tasks, per_step, shuffle };
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
            let sampler = Sampler { seed, tasks: 17, per_step: 5, shuffle: true };
            prop_assert_eq!(sampler.step(step), sampler.step(step));
            prop_assert_eq!(sampler.step(step).len(), 5);
        }
    }

    #[test]
    fn epochs_and_seeds_differ_in_order() {
        let order =
            |seed, epoch| Sampler { seed, tasks: 20, per_step: 20, shuffle: true }.step(epoch);
        let orders: BTreeSet<Vec<usize>> =
            (0..4).flat_map(|seed| (0..4).map(move |epoch| order(seed, epoch))).collect();
        assert_eq!(orders.len(), 16);
    }
}

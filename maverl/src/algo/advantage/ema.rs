//! A baseline that each seat carries from step to step.

use std::collections::BTreeMap;

use maverl_kernels::advantage::Segments;
use serde::{Deserialize, Serialize};

use crate::credit::Estimators;

/// A moving average of the rewards of each seat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmaBaseline {
    /// Share of the old average that is kept.
    pub momentum: f64,
    /// The average of each seat; one that has not spoken has 0.
    pub seats: BTreeMap<usize, f64>,
}

impl EmaBaseline {
    /// Averages that begin at 0.
    pub const fn new(momentum: f64) -> Self {
        Self { momentum, seats: BTreeMap::new() }
    }

    /// The average of a seat.
    pub fn of(&self, seat: usize) -> f64 {
        self.seats.get(&seat).copied().unwrap_or(0.0)
    }

    /// The advantages of a step's rows `[N]`, taken before the averages move:
    /// [`subtract_average`](maverl_kernels::advantage::subtract_average()).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub(crate) fn step(
        &mut self,
        rewards: &[f64],
        seats: &[usize],
        estimators: &Estimators,
    ) -> Vec<f64> {
        let segments = Segments::from_groups(seats);
        let mut averages: Vec<f64> =
            (0..segments.group_count()).map(|seat| self.of(seat)).collect();
        let advantages = estimators.ema(rewards, &segments, self.momentum, &mut averages);
        self.seats.extend(seats.iter().map(|&seat| (seat, averages[seat])));
        advantages
    }
}

impl Default for EmaBaseline {
    fn default() -> Self {
        Self::new(0.9)
    }
}

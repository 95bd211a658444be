//! A baseline that each seat carries from step to step.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A moving average of the rewards of each seat.
///
/// ```text
/// A = r − b
/// b ← m · b + (1 − m) · mean r of the seat            after the step
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmaBaseline {
    /// How much of the old average stays.
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

    /// The advantages of a step's rows `[N]`, taken before the averages move.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn step(&mut self, rewards: &[f64], seats: &[usize]) -> Vec<f64> {
        let of = |(reward, seat): (&f64, &usize)| reward - self.of(*seat);
        let advantages = rewards.iter().zip(seats).map(of).collect();
        self.observe(rewards, seats);
        advantages
    }

    /// Lets the averages move by a step's rows `[N]`.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn observe(&mut self, rewards: &[f64], seats: &[usize]) {
        assert_eq!(rewards.len(), seats.len(), "EmaBaseline: one seat per reward");
        let mut sums: BTreeMap<usize, (f64, usize)> = BTreeMap::new();
        for (reward, &seat) in rewards.iter().zip(seats) {
            let (sum, rows) = sums.entry(seat).or_default();
            (*sum, *rows) = (*sum + reward, *rows + 1);
        }
        for (seat, (sum, rows)) in sums {
            let average = self.seats.entry(seat).or_default();
            *average = self.momentum * *average + (1.0 - self.momentum) * sum / rows as f64;
        }
    }
}

impl Default for EmaBaseline {
    fn default() -> Self {
        Self::new(0.9)
    }
}

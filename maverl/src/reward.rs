//! Reward functions: named parts of the reward in addition to the environment's score.

use crate::trajectory::{RewardOf, Seat};

/// Result of a `#[reward]` function: values for the whole episode, for seats, for turns.
///
/// ```
/// use maverl::reward::Rewards;
///
/// let rewards = Rewards::episode(0.5).turn(2, -0.1);
/// assert_eq!(rewards.parts().len(), 2);
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rewards(Vec<(RewardOf, f64)>);

impl Rewards {
    /// Creates an empty reward.
    pub fn none() -> Self {
        Self::default()
    }

    /// Creates a reward of `value` for every turn of the episode.
    pub fn episode(value: f64) -> Self {
        Self(vec![(RewardOf::Episode, value)])
    }

    /// Adds a value for every turn of one seat.
    #[must_use]
    pub fn seat(mut self, seat: Seat, value: f64) -> Self {
        self.0.push((RewardOf::Seat(seat), value));
        self
    }

    /// Adds a value for one turn, by its index in `Episode::turns`.
    #[must_use]
    pub fn turn(mut self, turn: usize, value: f64) -> Self {
        self.0.push((RewardOf::Turn(turn), value));
        self
    }

    /// Adds a value for a recipient.
    #[must_use]
    pub(crate) fn of(mut self, of: RewardOf, value: f64) -> Self {
        self.0.push((of, value));
        self
    }

    /// Returns the values.
    pub fn parts(&self) -> &[(RewardOf, f64)] {
        &self.0
    }
}

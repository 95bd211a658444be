//! Reward parts for seats and turns, and metrics, that an orchestra adds to its episode.

use std::marker::PhantomData;

use crate::agent::AgentName;
use crate::orchestra::branch::lock;
use crate::orchestra::reward_parts::Recipient;
use crate::orchestra::team::{SeatOf, Team};
use crate::orchestra::{AskError, Includes};
use crate::task::Score;
use crate::trajectory::{Fault, FaultKind, Seat, TurnPath};

impl<O: ?Sized> Team<O> {
    /// Returns the environment's score of an answer, for [`SeatOf::add_reward`] and [`Team::log_metric`]. A prompt that
    /// depends on it leaks the truth to the agent.
    ///
    /// # Errors
    ///
    /// If the environment fails: the episode ends unscored.
    pub async fn judge(&self, answer: &str) -> Result<Score, AskError> {
        let judged = self.table.score(Some(answer)).await;
        judged
            .map_err(|error| self.table.fail(Fault::new(FaultKind::Environment, error.to_string())))
    }

    /// Logs a metric: `rollout/score/<name>` is the mean over the values of an episode and then over episodes.
    pub fn log_metric(&self, name: &'static str, value: f64) {
        lock(&self.table.reward_parts).log(name.into(), value);
    }

    /// Returns the seed of the episode, for orchestras that sample.
    pub fn seed(&self) -> u64 {
        self.table.seed
    }

    /// Returns the seat of an agent that has one seat.
    pub fn only<A: AgentName>(&self) -> SeatOf<'_, O, A>
    where
        O: Includes<A>,
    {
        SeatOf { team: self, seat: Seat::only(A::NAME), agent: PhantomData }
    }
}

impl<O: ?Sized, A: AgentName> SeatOf<'_, O, A> {
    /// Adds a named part to the reward of this seat's latest turn on this branch. Does nothing if there is no such
    /// turn. A part of 0 is omitted.
    pub fn add_reward(&self, name: &'static str, value: f64) {
        if let Some(turn) = self.last() {
            self.add_turn_reward(&turn, name, value);
        }
    }

    /// Returns the path of this seat's latest turn on this branch, for [`SeatOf::add_turn_reward`].
    pub fn last(&self) -> Option<TurnPath> {
        let branch = self.team.branch.path();
        let turns = lock(&self.team.table.turns);
        let ours = turns.iter().filter(|turn| turn.seat == self.seat);
        let paths = ours.map(|turn| &turn.path).filter(|path| path.0.starts_with(&branch.0));
        paths.max().cloned()
    }

    /// Adds a named part to the reward of one turn.
    pub fn add_turn_reward(&self, turn: &TurnPath, name: &'static str, value: f64) {
        self.enter(Recipient::Turn(turn.clone()), name, value);
    }

    /// Masks one turn: no policy is trained on it, and it is excluded from all comparisons of turns.
    pub fn mask_turn(&self, turn: &TurnPath) {
        let mut turns = lock(&self.team.table.turns);
        if let Some(turn) = turns.iter_mut().find(|t| t.path == *turn && t.seat == self.seat) {
            turn.masked = true;
        }
    }

    /// Adds a named part to the reward of every turn of this seat.
    pub fn add_seat_reward(&self, name: &'static str, value: f64) {
        self.enter(Recipient::Seat(self.seat.clone()), name, value);
    }

    fn enter(&self, payee: Recipient, name: &'static str, value: f64) {
        if value != 0.0 {
            lock(&self.team.table.reward_parts).add(payee, name.into(), value);
        }
    }
}

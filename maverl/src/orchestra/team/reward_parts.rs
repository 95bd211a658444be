//! What an orchestra adds to its episode: parts of rewards for a seat or a turn, and numbers worth logging.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{EpisodeState, SeatOf, Team};
use crate::agent::AgentName;
use crate::orchestra::branch::lock;
use crate::orchestra::{AskError, Includes};
use crate::task::Score;
use crate::trajectory::{Fault, FaultKind, RewardOf, RewardPart, Seat, Turn, TurnPath};

/// What is noted while an episode is played.
#[derive(Default)]
pub(super) struct RewardParts {
    pay: Vec<(Recipient, &'static str, f64)>,
    notes: BTreeMap<&'static str, Vec<f64>>,
}

/// Who is paid. A turn has no number before the episode is over.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Recipient {
    Seat(Seat),
    Turn(TurnPath),
}

impl EpisodeState {
    /// The reward parts that the orchestra gave, for an episode of these turns. Their order does not depend on the order
    /// in which concurrent parts of the orchestra gave them.
    pub(crate) fn reward_parts(&self, turns: &[Turn]) -> Vec<RewardPart> {
        let mut pay = lock(&self.reward_parts).pay.clone();
        pay.sort_by(|(a, x, v), (b, y, w)| (a, x).cmp(&(b, y)).then(v.total_cmp(w)));
        let of = |payee| match payee {
            Recipient::Seat(seat) => Some(RewardOf::Seat(seat)),
            Recipient::Turn(path) => turns.iter().position(|t| t.path == path).map(RewardOf::Turn),
        };
        let part = |(payee, name, value): (Recipient, &str, f64)| {
            Some(RewardPart { name: name.to_owned(), value, of: of(payee)? })
        };
        pay.into_iter().filter_map(part).collect()
    }

    /// The mean of each number that was noted.
    pub(crate) fn notes(&self) -> Map<String, Value> {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let added = lock(&self.reward_parts);
        added.notes.iter().map(|(name, v)| ((*name).to_owned(), mean(v).into())).collect()
    }
}

impl<O: ?Sized> Team<O> {
    /// What the environment would score an answer, for [`SeatOf::add_reward`] and [`Team::log_metric`]. An agent that is shown anything
    /// that depends on it is told the truth.
    ///
    /// # Errors
    ///
    /// If the environment fails: the episode ends unscored.
    pub async fn judge(&self, answer: &str) -> Result<Score, AskError> {
        let judged = self.table.score(Some(answer)).await;
        judged
            .map_err(|error| self.table.fail(Fault::new(FaultKind::Environment, error.to_string())))
    }

    /// Notes a number worth logging: `rollout/score/<name>`, the mean over an episode's notes and then over episodes.
    pub fn log_metric(&self, name: &'static str, value: f64) {
        lock(&self.table.reward_parts).notes.entry(name).or_default().push(value);
    }

    /// The episode's seed, for orchestras that draw lots.
    pub fn seed(&self) -> u64 {
        self.table.seed
    }

    /// The seat of an agent that sits once.
    pub fn only<A: AgentName>(&self) -> SeatOf<'_, O, A>
    where
        O: Includes<A>,
    {
        SeatOf { team: self, seat: Seat::only(A::NAME), agent: std::marker::PhantomData }
    }
}

impl<O: ?Sized, A: AgentName> SeatOf<'_, O, A> {
    /// Adds a named part to the reward of this seat's latest turn on this branch; nothing if there is none. A part of 0 is
    /// left out.
    pub fn add_reward(&self, name: &'static str, value: f64) {
        if let Some(turn) = self.last() {
            self.add_turn_reward(&turn, name, value);
        }
    }

    /// Where this seat's latest turn on this branch stands, for [`SeatOf::add_turn_reward`].
    pub fn last(&self) -> Option<TurnPath> {
        let branch = self.team.branch.path();
        let turns = lock(&self.team.table.turns);
        let ours = |turn: &&Turn| turn.seat == self.seat && turn.path.0.starts_with(&branch.0);
        turns.iter().filter(ours).map(|turn| turn.path.clone()).max()
    }

    /// Adds a named part to the reward of one turn.
    pub fn add_turn_reward(&self, turn: &TurnPath, name: &'static str, value: f64) {
        self.enter(Recipient::Turn(turn.clone()), name, value);
    }

    /// Lets one turn rest: nobody is trained on it, and it is compared with no other turn.
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
            lock(&self.team.table.reward_parts).pay.push((payee, name, value));
        }
    }
}

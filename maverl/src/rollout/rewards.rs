//! Parts of the reward that something else than a declared function gives: a server, a Python file, a language
//! model, a verifier in this process, or prices.

pub(crate) mod judge;
pub mod protocol;
pub(crate) mod python;
mod server;
mod usage;
mod verifier;

pub use protocol::{ItemTask, ScoredItem};
pub use server::RewardServer;
pub(crate) use usage::UsageReward;
pub use verifier::VerifierReward;
pub use verifier::{Verifier, VerifierInput};

use std::path::Path;

use futures::future::BoxFuture;
use serde_json::{Map, Value};

use crate::config::RewardUnit;
use crate::reward::Rewards;
use crate::trajectory::{Episode, Message, RewardOf, Role, Turn};

/// A source of values that may take its time and may fail.
#[doc(hidden)]
pub trait Scorer: Send + Sync {
    /// Scores an ended episode.
    ///
    /// # Errors
    ///
    /// The description of a failure that the policy did not cause: the episode ends unscored.
    fn score<'a>(&'a self, episode: &'a Episode) -> BoxFuture<'a, Result<ScoredRewards, String>>;

    /// Scores the episodes of a task by comparing them; `None` if it compares none.
    fn compare<'a>(
        &'a self,
        group: &'a [&'a Episode],
    ) -> Option<BoxFuture<'a, Vec<Result<ScoredRewards, String>>>> {
        let _ = group;
        None
    }

    /// Returns true if its values are repeatable in runs of one process only.
    fn takes_one_process(&self) -> bool {
        false
    }

    /// Returns the names of the files that values depend on, relative to the directory of the configuration.
    fn sources(&self) -> Vec<String> {
        Vec::new()
    }

    /// Writes what belongs to a run into its directory from now on.
    ///
    /// # Errors
    ///
    /// The description of a file that cannot be written.
    fn open_in(&self, dir: &Path) -> Result<(), String> {
        let _ = dir;
        Ok(())
    }

    /// Takes the counts and times since the last call, by name.
    fn take_usage(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// Values of an episode.
#[derive(Debug, Clone, PartialEq, Default)]
#[doc(hidden)]
pub struct ScoredRewards {
    /// Values by recipient, without the weight.
    pub rewards: Rewards,
    /// Number of values that are missing; `None` if a missing value is an error.
    pub skipped: Option<u64>,
    /// Further quantities of the episode, which become part of the metrics of its score.
    pub metrics: Map<String, Value>,
}

/// Units of an episode that are scored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Units {
    pub(crate) of: RewardUnit,
    /// Seats or agents; empty is all.
    pub(crate) seats: Vec<String>,
    /// Keys of the task's data.
    pub(crate) send: Vec<String>,
}

impl Units {
    /// Returns the items of an episode with their recipients. An episode without an answer has no answer to score.
    pub(crate) fn items(&self, episode: &Episode) -> Vec<(RewardOf, ScoredItem)> {
        match (self.of, &episode.answer) {
            (RewardUnit::Turn, _) => {
                let turns = episode.turns.iter().enumerate();
                let chosen = turns.filter(|(_, turn)| self.chosen(turn));
                chosen.map(|(i, turn)| (RewardOf::Turn(i), self.turn(episode, i, turn))).collect()
            }
            (RewardUnit::Answer, None) => Vec::new(),
            (RewardUnit::Answer, Some(answer)) => {
                let question = episode.task.question.clone();
                let item = ScoredItem {
                    messages: vec![Message { role: Role::User, content: question }],
                    completion: Some(answer.clone()),
                    answer: Some(answer.clone()),
                    ..self.item(episode)
                };
                vec![(RewardOf::Episode, item)]
            }
        }
    }

    fn chosen(&self, turn: &Turn) -> bool {
        let seat = turn.seat.to_string();
        self.seats.is_empty() || self.seats.iter().any(|of| *of == seat || *of == turn.seat.agent)
    }

    fn turn(&self, episode: &Episode, index: usize, turn: &Turn) -> ScoredItem {
        ScoredItem {
            messages: turn.prompt.clone(),
            completion: Some(turn.reply.clone()),
            seat: Some(turn.seat.to_string()),
            turn: Some(index),
            ..self.item(episode)
        }
    }

    /// Returns an item of an episode without messages.
    fn item(&self, episode: &Episode) -> ScoredItem {
        let task = &episode.task;
        let sent = self.send.iter();
        ScoredItem {
            id: String::new(),
            task: Some(ItemTask {
                id: task.id.clone(),
                source: task.source.clone(),
                question: task.question.clone(),
            }),
            data: sent.filter_map(|key| Some((key.clone(), task.data.get(key)?.clone()))).collect(),
            messages: Vec::new(),
            completion: None,
            answer: None,
            seat: None,
            turn: None,
        }
    }
}

#[cfg(test)]
mod tests;

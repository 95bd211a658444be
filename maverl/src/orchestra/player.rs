//! Players in the place of an orchestra: asks with ready messages, whose places among the turns the player decides.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use serde_json::Value;

use crate::agent::{AskError, Prompt};
use crate::env::EnvError;
use crate::orchestra::backend::Ask;
use crate::orchestra::branch::lock;
use crate::orchestra::conversation::Conversation;
use crate::orchestra::episode::{EpisodeState, answered_turn};
use crate::orchestra::reward_parts::Recipient;
use crate::orchestra::team::Team;
use crate::task::{Action, Observation};
use crate::tools::Tool;
use crate::trajectory::{Fault, FaultKind, Seat, Turn, TurnPath};

/// A player of episodes in the place of an orchestra, such as a gateway to external programs. It asks the seats and acts
/// through the state of the episode.
pub trait EpisodePlayer: Send + Sync {
    /// Plays an episode with these seats. Returns the answer, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// The fault of an episode that is not scored.
    fn play(
        &self,
        state: &Arc<EpisodeState>,
        seats: Vec<Seat>,
    ) -> impl Future<Output = Result<Option<String>, AskError>> + Send;
}

impl<O: ?Sized> Team<O> {
    /// Lets a player play the episode with these seats.
    ///
    /// # Errors
    ///
    /// See [`EpisodePlayer::play`].
    #[doc(hidden)]
    pub async fn play_by<P: EpisodePlayer>(
        &self,
        player: &P,
        seats: Vec<Seat>,
    ) -> Result<Option<String>, AskError> {
        player.play(&self.table, seats).await
    }
}

impl EpisodeState {
    /// Sets the source of the episode's log.
    pub fn log_from(&self, source: impl FnOnce() -> String + Send + 'static) {
        *lock(&self.log) = Some(Box::new(source));
    }

    /// Returns the seed of the episode.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Generates a reply. Returns it as a turn that is not recorded yet, and the conversation after it.
    ///
    /// # Errors
    ///
    /// The fault of the backend, which is not recorded either.
    pub async fn generate(
        &self,
        ask: Ask,
        mut conversation: Conversation,
    ) -> Result<(Turn, Conversation), Fault> {
        let (seat, path) = (ask.seat.clone(), ask.path.clone());
        let Some(member) = self.members.get(&seat) else {
            let message = format!("nobody sits at `{seat}`; the seats are {}", self.seats());
            return Err(Fault::new(FaultKind::Orchestra, message));
        };
        let said = self.respond(&*member.backend, &mut conversation, ask).await?;
        let turn = answered_turn(path, seat, member.backend.name(), &conversation, said);
        Ok((turn, conversation))
    }

    /// Returns true if a conversation with a seat may have system messages after its first message.
    pub fn takes_later_system(&self, seat: &Seat) -> bool {
        self.members.get(seat).is_none_or(|member| member.backend.takes_later_system())
    }

    /// Returns the number of tokens of a prompt that begins a conversation with a seat; `None` if the seat has no tokens.
    pub fn count_tokens(&self, seat: &Seat, prompt: &Prompt) -> Option<Result<usize, Fault>> {
        self.members.get(seat)?.backend.count_tokens(prompt)
    }

    /// Changes the paths of recorded turns, all at once.
    pub fn rename_turns(&self, paths: &BTreeMap<TurnPath, TurnPath>) {
        for turn in lock(&self.turns).iter_mut() {
            if let Some(path) = paths.get(&turn.path) {
                turn.path = path.clone();
            }
        }
    }

    /// Acts in the environment of the task, and records the action at a place among the turns.
    ///
    /// # Errors
    ///
    /// If the environment fails. The episode then ends unscored.
    pub async fn act_at(
        &self,
        place: (TurnPath, u32),
        action: Action,
    ) -> Result<Observation, Fault> {
        let done = self.own.act(action.clone()).await.map_err(|error| {
            let fault = Fault::new(FaultKind::Environment, error.to_string());
            self.fail(fault.clone());
            fault
        })?;
        self.record_act(place, None, action, &done);
        Ok(done)
    }

    /// Returns the tools of the task's environment.
    pub fn tools(&self) -> Vec<Tool> {
        self.own.environment.tools(&self.task)
    }

    /// Returns true if the episode is scored by a reward that is reported to its environment.
    pub fn takes_rewards(&self) -> bool {
        self.own.environment.takes_rewards(&self.task)
    }

    /// Reports the reward of the episode to its environment.
    ///
    /// # Errors
    ///
    /// If the environment does not accept it. The episode goes on.
    pub async fn report(&self, report: Value) -> Result<(), EnvError> {
        let action = Action::Tool { name: crate::env::REPORT.to_owned(), arguments: report };
        self.own.act_now(action).await.map(drop)
    }

    /// Adds a named part to the reward of a recipient; a part of 0 is omitted.
    pub fn add_part(&self, recipient: Recipient, name: String, value: f64) {
        if value != 0.0 {
            lock(&self.reward_parts).add(recipient, name.into(), value);
        }
    }

    /// Logs a metric of the episode.
    pub fn log_metric(&self, name: &'static str, value: f64) {
        lock(&self.reward_parts).log(name.into(), value);
    }

    /// Logs a metric whose name a program chose.
    pub fn log_named(&self, name: String, value: f64) {
        lock(&self.reward_parts).log(name.into(), value);
    }
}

//! State of one episode: the task, the members, the sessions of its environments, the turns so far.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use serde_json::{Map, Value};

use crate::agent::{AskError, ReplyError};
use crate::env::{DynEnvironment, EnvError};
use crate::orchestra::backend::{Ask, ChatBackend, Response};
use crate::orchestra::branch::lock;
use crate::orchestra::conversation::Conversation;
use crate::orchestra::prefix::{Prefix, other_prompt};
use crate::orchestra::requests::RequestOptions;
use crate::orchestra::reward_parts::RewardParts;
use crate::orchestra::session::EnvSession;
use crate::task::{Action, Observation, Score, Task};
use crate::tools::ReplyFormat;
use crate::trajectory::{Act, Fault, RewardPart, Role, Seat, Turn, TurnPath, request_seed};

/// One seat: the agent (options applied) and its backend.
#[derive(Clone)]
pub struct Member {
    /// Agent, a value of the type registered under the seat's agent name.
    pub agent: Arc<dyn Any + Send + Sync>,
    /// Backend that generates the replies.
    pub backend: Arc<dyn ChatBackend>,
}

/// Shared state of one episode: the task, the members, the sessions of its environments, the turns so far.
pub struct EpisodeState {
    pub(super) task: Task,
    /// The task with the question of its environment, if that has one.
    opened: OnceLock<Task>,
    pub(super) seed: u64,
    pub(super) members: Arc<BTreeMap<Seat, Member>>,
    pub(super) own: EnvSession,
    pub(super) others: BTreeMap<String, EnvSession>,
    pub(super) turns: Mutex<Vec<Turn>>,
    acts: Mutex<Vec<Act>>,
    fault: Mutex<Option<Fault>>,
    pub(super) reward_parts: Mutex<RewardParts>,
    requests: RequestOptions,
    /// Recorded turns that the episode begins with.
    pub(super) prefix: Option<Arc<Prefix>>,
    pub(super) log: Mutex<Option<LogSource>>,
}

/// Source of the log of an episode, once it has ended.
pub(super) type LogSource = Box<dyn FnOnce() -> String + Send>;

impl EpisodeState {
    /// Creates the state of one episode. Its environments are opened by [`EpisodeState::open`].
    pub fn new(
        task: Task,
        seed: u64,
        members: Arc<BTreeMap<Seat, Member>>,
        environment: Arc<dyn DynEnvironment>,
    ) -> Self {
        let own = EnvSession::new(environment);
        Self {
            task,
            opened: OnceLock::new(),
            seed,
            members,
            own,
            others: BTreeMap::new(),
            turns: Mutex::default(),
            acts: Mutex::default(),
            fault: Mutex::default(),
            reward_parts: Mutex::default(),
            requests: RequestOptions::default(),
            prefix: None,
            log: Mutex::default(),
        }
    }

    /// Sets the options of the requests.
    #[must_use]
    pub fn with_requests(self, requests: RequestOptions) -> Self {
        Self { requests, ..self }
    }

    /// Sets the recorded turns that the episode begins with.
    #[must_use]
    pub fn with_prefix(self, prefix: Option<Arc<Prefix>>) -> Self {
        Self { prefix, ..self }
    }

    /// Returns the seed of the request of a turn of a seat.
    pub(super) fn request_seed(&self, path: &TurnPath, seat: &Seat) -> u64 {
        request_seed(self.seed, self.prefix.as_ref().map(|prefix| prefix.branch()), path, seat)
    }

    /// Sends a request to a backend; a turn that is recorded gets its recorded reply. Beyond the place at which the episode leaves
    /// the recorded one, it gets it only if its prompt is the recorded one.
    pub(super) async fn respond(
        &self,
        backend: &dyn ChatBackend,
        conversation: &mut Conversation,
        ask: Ask,
    ) -> Result<Response, Fault> {
        let prefix = self.prefix.as_ref();
        if let Some((prefix, recorded)) = prefix.and_then(|it| Some((it, it.turn(&ask.path)?))) {
            let mut again = conversation.clone();
            let recalled = if recorded.seat == ask.seat {
                backend.recall(&mut again, &ask, recorded)
            } else {
                Err(other_prompt(recorded))
            };
            if recalled.is_ok() {
                *conversation = again;
            }
            if recalled.is_ok() || prefix.binds(&ask.path) {
                return recalled;
            }
        }
        self.requests.respond(backend, conversation, ask).await
    }

    /// Returns the task of the episode.
    pub fn task(&self) -> &Task {
        self.opened.get().unwrap_or(&self.task)
    }

    /// Returns true if a member has the seat.
    pub(crate) fn has_member(&self, seat: &Seat) -> bool {
        self.members.contains_key(seat)
    }

    /// Returns the form of the replies of a seat.
    pub fn reply_format(&self, seat: &Seat) -> Option<ReplyFormat> {
        Some(self.members.get(seat)?.backend.reply_format())
    }

    /// Returns the turns recorded so far, sorted by path.
    pub fn turns(&self) -> Vec<Turn> {
        let mut turns = lock(&self.turns).clone();
        turns.sort_by(|a, b| a.path.cmp(&b.path));
        turns
    }

    /// Takes the recorded turns, sorted by path, at the end of the episode.
    pub(crate) fn take_turns(&self) -> Vec<Turn> {
        let mut turns = std::mem::take(&mut *lock(&self.turns));
        turns.sort_by(|a, b| a.path.cmp(&b.path));
        turns
    }

    /// Takes the log of the program that played the episode, at its end.
    pub(crate) fn take_log(&self) -> String {
        lock(&self.log).take().map_or_else(String::new, |source| source())
    }

    /// Returns the first fault of an ask or an action, even if the orchestra ignored it.
    pub fn fault(&self) -> Option<Fault> {
        lock(&self.fault).clone()
    }

    /// Judges the answer.
    ///
    /// # Errors
    ///
    /// If the environment fails.
    pub async fn score(&self, answer: Option<&str>) -> Result<Score, EnvError> {
        self.own.score(answer).await
    }

    /// Records a turn before its reply is parsed, so that it survives a panic of the parser (RO-2).
    pub fn record(&self, turn: Turn) {
        lock(&self.turns).push(turn);
    }

    /// Records the parse error of a recorded turn's reply.
    pub fn reject(&self, path: &TurnPath, error: &ReplyError) {
        if let Some(turn) = lock(&self.turns).iter_mut().find(|turn| turn.path == *path) {
            turn.error = Some(error.to_string());
        }
    }

    /// Returns true if a turn is recorded as malformed with this error.
    pub fn is_rejected(&self, error: &ReplyError) -> bool {
        let error = error.to_string();
        lock(&self.turns).iter().any(|turn| turn.error.as_ref() == Some(&error))
    }

    /// Records a fault, if it is the first one, and returns it as an error.
    pub fn fail(&self, fault: Fault) -> AskError {
        lock(&self.fault).get_or_insert_with(|| fault.clone());
        fault.into()
    }

    /// Returns the names of the seats, for messages.
    pub(super) fn seats(&self) -> String {
        self.members.keys().map(|seat| format!("`{seat}`")).collect::<Vec<_>>().join(", ")
    }

    /// Adds further environments to act in, by name. The task is judged in its own environment.
    #[must_use]
    pub fn with_environments(
        mut self,
        environments: &BTreeMap<String, Arc<dyn DynEnvironment>>,
    ) -> Self {
        let others = environments
            .iter()
            .map(|(name, environment)| (name.clone(), EnvSession::new(Arc::clone(environment))));
        self.others = others.collect();
        self
    }

    /// Opens a session in each environment. Those that are open when it fails are closed by [`EpisodeState::close`].
    ///
    /// # Errors
    ///
    /// The first failure of an environment.
    pub async fn open(&self) -> Result<(), EnvError> {
        if let Some(question) = self.own.open(&self.task, self.seed).await? {
            // A state is opened once.
            let _ = self.opened.set(Task { question, ..self.task.clone() });
        }
        for (name, other) in &self.others {
            other.open(&self.task, self.seed).await.map_err(|error| named_error(name, &error))?;
        }
        Ok(())
    }

    /// Closes every open session, once.
    ///
    /// # Errors
    ///
    /// The first failure of an environment. The others are closed nevertheless.
    pub async fn close(&self) -> Result<(), EnvError> {
        let mut closed = self.own.close().await;
        for (name, other) in &self.others {
            let done = other.close().await.map_err(|error| named_error(name, &error));
            closed = closed.and(done);
        }
        closed
    }

    /// Takes the recorded actions, sorted by their place among the turns, at the end of the episode.
    pub(crate) fn take_acts(&self) -> Vec<Act> {
        let mut acts = std::mem::take(&mut *lock(&self.acts));
        acts.sort_by(|a, b| (&a.path, a.nth).cmp(&(&b.path, b.nth)));
        acts
    }

    /// Records an executed action at its place among the turns.
    pub(super) fn record_act(
        &self,
        (path, nth): (TurnPath, u32),
        environment: Option<String>,
        action: Action,
        seen: &Observation,
    ) {
        let (observation, done) = (seen.text.clone(), seen.done);
        lock(&self.acts).push(Act { path, nth, environment, action, observation, done });
    }

    /// Returns the reward parts that the orchestra added, for an episode of these turns. Their order does not depend on
    /// the order in which concurrent parts of the orchestra added them.
    pub(crate) fn reward_parts(&self, turns: &[Turn]) -> Vec<RewardPart> {
        lock(&self.reward_parts).of_turns(turns)
    }

    /// Returns the mean of each logged metric.
    pub(crate) fn metric_means(&self) -> Map<String, Value> {
        lock(&self.reward_parts).metric_means()
    }
}

/// Adds the name of a further environment to its error.
pub(super) fn named_error(name: &str, error: &EnvError) -> EnvError {
    EnvError(format!("environment `{name}`: {error}"))
}

/// Returns the turn of a reply.
pub(super) fn answered_turn(
    path: TurnPath,
    seat: Seat,
    policy: &str,
    conversation: &Conversation,
    said: Response,
) -> Turn {
    let mut prompt = conversation.messages.clone();
    prompt.pop_if(|last| last.role == Role::Assistant);
    Turn {
        path,
        seat,
        policy: policy.to_owned(),
        prompt,
        tools: conversation.tools.clone(),
        reply: said.reply,
        error: None,
        truncated: said.truncated,
        shortened: said.shortened,
        forked: said.forked,
        masked: false,
        tokens: said.tokens,
        teacher: None,
    }
}

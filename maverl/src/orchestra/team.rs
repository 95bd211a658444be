//! Interface of an orchestra to its episode: asks of agents and actions in the environment.

mod backend;
mod environments;
mod player;
mod reward_parts;

pub use backend::{Ask, AskLimits, ChatBackend, Response};
pub use player::EpisodePlayer;
pub use reward_parts::Recipient;

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, OnceLock};

use crate::agent::{AgentName, AskError, Prompt, ReplyError};
use crate::env::{DynEnvironment, EnvError};
use crate::orchestra::branch::{Branch, Flight, RACED, lock};
use crate::orchestra::{Conversation, Includes};
use crate::task::Task;
use crate::trajectory::{Act, Fault, FaultKind, Role, Seat, Turn, TurnPath};

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
    task: Task,
    /// The task with the question of its environment, if that has one.
    opened: OnceLock<Task>,
    seed: u64,
    members: Arc<BTreeMap<Seat, Member>>,
    own: environments::EnvSession,
    beside: BTreeMap<String, environments::EnvSession>,
    turns: Mutex<Vec<Turn>>,
    acts: Mutex<Vec<Act>>,
    fault: Mutex<Option<Fault>>,
    reward_parts: Mutex<reward_parts::RewardParts>,
    log: Mutex<Option<LogSource>>,
}

/// Source of the log of an episode, once it has ended.
type LogSource = Box<dyn FnOnce() -> String + Send>;

impl EpisodeState {
    /// Creates the state of one episode. Its environments are opened by [`EpisodeState::open`].
    pub fn new(
        task: Task,
        seed: u64,
        members: Arc<BTreeMap<Seat, Member>>,
        environment: Arc<dyn DynEnvironment>,
    ) -> Self {
        let own = environments::EnvSession::new(environment);
        let (opened, beside, turns, acts, fault, reward_parts, log) = Default::default();
        Self { task, opened, seed, members, own, beside, turns, acts, fault, reward_parts, log }
    }

    /// Returns the task of the episode.
    pub fn task(&self) -> &Task {
        self.opened.get().unwrap_or(&self.task)
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
    pub async fn score(&self, answer: Option<&str>) -> Result<crate::task::Score, EnvError> {
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
    pub fn rejected(&self, error: &ReplyError) -> bool {
        let error = error.to_string();
        lock(&self.turns).iter().any(|turn| turn.error.as_ref() == Some(&error))
    }

    /// Records a fault, if it is the first one, and returns it as an error.
    pub fn fail(&self, fault: Fault) -> AskError {
        lock(&self.fault).get_or_insert_with(|| fault.clone());
        fault.into()
    }

    fn seats(&self) -> String {
        self.members.keys().map(|seat| format!("`{seat}`")).collect::<Vec<_>>().join(", ")
    }
}

/// Handle of an orchestra to its team in one episode.
pub struct Team<O: ?Sized> {
    table: Arc<EpisodeState>,
    branch: Arc<Branch>,
    orchestra: PhantomData<fn(&O)>,
}

impl<O: ?Sized> Team<O> {
    /// Creates the team of one episode.
    pub fn new(table: Arc<EpisodeState>) -> Self {
        Self { table, branch: Arc::default(), orchestra: PhantomData }
    }

    /// Asks an agent in a fresh conversation.
    ///
    /// The turn's path is assigned when `ask` is *called*, so several asks may be joined:
    /// `join!(team.ask::<A>(&x), team.ask::<B>(&y))`. Concurrent parts that each ask several times need a
    /// [`Team::branch`] each.
    ///
    /// # Errors
    ///
    /// See [`AskError`].
    pub fn ask<A: AgentName>(
        &self,
        input: &A::Input,
    ) -> impl Future<Output = Result<A::Output, AskError>> + Send + use<A, O>
    where
        O: Includes<A>,
    {
        self.put::<A>(Seat::only(A::NAME), input, Conversation::default()).answer(Ok)
    }

    /// Opens a conversation with an agent.
    pub fn chat<A: AgentName>(&self) -> Chat<'_, O, A>
    where
        O: Includes<A>,
    {
        Chat {
            team: self,
            seat: Seat::only(A::NAME),
            conversation: Conversation::default(),
            agent: PhantomData,
        }
    }

    /// Returns one seat of an agent with several seats (`agents(Debater[3])`), from 0.
    pub fn seat<A: AgentName>(&self, index: usize) -> SeatOf<'_, O, A>
    where
        O: Includes<A>,
    {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        SeatOf { team: self, seat: Seat::at(A::NAME, index), agent: PhantomData }
    }

    /// Returns a team whose turns are on a branch of their own, for concurrent parts that each ask more than once.
    #[must_use]
    pub fn branch(&self) -> Self {
        let (path, raced) = self.branch.next();
        let branch = Arc::new(Branch::new(path, raced));
        Self { table: Arc::clone(&self.table), branch, orchestra: PhantomData }
    }

    /// Returns the task of the episode.
    pub fn task(&self) -> &Task {
        self.table.task()
    }

    fn put<A: AgentName>(
        &self,
        seat: Seat,
        input: &A::Input,
        conversation: Conversation,
    ) -> Put<A> {
        let (path, raced) = self.branch.next();
        let member = self.table.members.get(&seat).and_then(|member| {
            let agent = Arc::clone(&member.agent).downcast::<A>().ok()?;
            Some((agent, Arc::clone(&member.backend)))
        });
        let prompt = member.as_ref().map(|(agent, _)| agent.prompt(input)).unwrap_or_default();
        let (table, branch) = (Arc::clone(&self.table), Arc::clone(&self.branch));
        Put { table, branch, path, raced, seat, member, prompt, conversation }
    }
}

/// One seat of an agent with several seats.
pub struct SeatOf<'t, O: ?Sized, A> {
    team: &'t Team<O>,
    seat: Seat,
    agent: PhantomData<fn(&A)>,
}

impl<'t, O: ?Sized, A: AgentName> SeatOf<'t, O, A> {
    /// Asks this seat in a fresh conversation; see [`Team::ask`].
    ///
    /// # Errors
    ///
    /// See [`AskError`].
    pub fn ask(
        &self,
        input: &A::Input,
    ) -> impl Future<Output = Result<A::Output, AskError>> + Send + use<A, O> {
        self.ask_with(input, Ok)
    }

    /// Asks this seat, and passes the parsed reply to `read`, which validates it with the orchestra's knowledge. A
    /// reply that `read` rejects is malformed like one that the parser rejects: its turn has the error and gets the
    /// penalty.
    ///
    /// # Errors
    ///
    /// See [`AskError`].
    pub fn ask_with<T, R>(
        &self,
        input: &A::Input,
        read: R,
    ) -> impl Future<Output = Result<T, AskError>> + Send + use<A, O, T, R>
    where
        R: FnOnce(A::Output) -> Result<T, ReplyError> + Send,
    {
        self.team.put::<A>(self.seat.clone(), input, Conversation::default()).answer(read)
    }

    /// Opens a conversation with this seat.
    pub fn chat(&self) -> Chat<'t, O, A> {
        let conversation = Conversation::default();
        Chat { team: self.team, seat: self.seat.clone(), conversation, agent: PhantomData }
    }
}

/// A conversation: each `respond` appends to it, token by token.
pub struct Chat<'t, O: ?Sized, A> {
    team: &'t Team<O>,
    seat: Seat,
    conversation: Conversation,
    agent: PhantomData<fn(&A)>,
}

impl<'t, O: ?Sized, A: AgentName> Chat<'t, O, A> {
    /// Sends the next prompt and waits for the reply.
    ///
    /// # Errors
    ///
    /// See [`AskError`]. After a malformed reply the conversation contains that reply and may continue.
    pub fn respond<'c>(
        &'c mut self,
        input: &A::Input,
    ) -> impl Future<Output = Result<A::Output, AskError>> + Send + use<'c, 't, A, O> {
        // A copy, so that a cancelled `respond` leaves the conversation unchanged.
        let conversation = self.conversation.clone();
        let put = self.team.put::<A>(self.seat.clone(), input, conversation);
        let home = &mut self.conversation;
        async move {
            let (conversation, output) = put.respond(Ok).await;
            *home = conversation;
            output
        }
    }
}

/// An ask with its path and prompt that waits for its reply.
struct Put<A> {
    table: Arc<EpisodeState>,
    branch: Arc<Branch>,
    path: TurnPath,
    raced: bool,
    seat: Seat,
    member: Option<(Arc<A>, Arc<dyn ChatBackend>)>,
    prompt: Prompt,
    conversation: Conversation,
}

impl<A: AgentName> Put<A> {
    async fn answer<T>(
        self,
        read: impl FnOnce(A::Output) -> Result<T, ReplyError>,
    ) -> Result<T, AskError> {
        self.respond(read).await.1
    }

    async fn respond<T>(
        self,
        read: impl FnOnce(A::Output) -> Result<T, ReplyError>,
    ) -> (Conversation, Result<T, AskError>) {
        let Self { table, branch, path, raced, seat, member, prompt, mut conversation } = self;
        let _flight = Flight::start(&branch);
        if raced {
            let fault = Fault::new(FaultKind::Orchestra, RACED);
            return (conversation, Err(table.fail(fault)));
        }
        let Some((agent, backend)) = member else {
            let message = format!("nobody sits at `{seat}`; the seats are {}", table.seats());
            let fault = Fault::new(FaultKind::Orchestra, message);
            return (conversation, Err(table.fail(fault)));
        };
        let seed = path.seed(table.seed);
        let limits = AskLimits::default();
        let ask = Ask { seat: seat.clone(), path: path.clone(), seed, prompt, limits };
        let said = match backend.respond(&mut conversation, ask).await {
            Ok(said) => said,
            Err(fault) => return (conversation, Err(table.fail(fault))),
        };
        let (reply, truncated) = (said.reply.clone(), said.truncated);
        let tokens = said.tokens.as_ref().map_or(0, |tokens| tokens.completion.len());
        table.record(turn(path.clone(), seat, backend.name(), &conversation, said));
        let parsed = if truncated {
            Err(ReplyError::Truncated { tokens })
        } else {
            agent.parse(&reply).and_then(read)
        };
        if let Err(error) = &parsed {
            table.reject(&path, error);
        }
        (conversation, parsed.map_err(AskError::Reply))
    }
}

fn turn(
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
    }
}

#[cfg(test)]
mod tests;

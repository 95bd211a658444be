//! Interface of an orchestra to its episode: asks of agents and actions in the environment.

mod actions;
mod rewards;

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::agent::{AgentName, AskError, Prompt, ReplyError};
use crate::orchestra::backend::{Ask, AskLimits, ChatBackend};
use crate::orchestra::branch::{Branch, Flight, RACED};
use crate::orchestra::conversation::Conversation;
use crate::orchestra::episode::{EpisodeState, answered_turn};
use crate::orchestra::{Includes, Orchestra, OrchestraName};
use crate::task::Task;
use crate::trajectory::{Fault, FaultKind, Seat, TurnPath};

/// Handle of an orchestra to its team in one episode.
pub struct Team<O: ?Sized> {
    pub(super) table: Arc<EpisodeState>,
    pub(super) branch: Arc<Branch>,
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
        self.prepare::<A>(Seat::only(A::NAME), input, Conversation::default()).answer(Ok)
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

    fn prepare<A: AgentName>(
        &self,
        seat: Seat,
        input: &A::Input,
        conversation: Conversation,
    ) -> PendingAsk<A> {
        let (path, raced) = self.branch.next();
        let member = self.table.members.get(&seat).and_then(|member| {
            let agent = Arc::clone(&member.agent).downcast::<A>().ok()?;
            Some((agent, Arc::clone(&member.backend)))
        });
        let prompt = member.as_ref().map(|(agent, _)| agent.prompt(input)).unwrap_or_default();
        let (table, branch) = (Arc::clone(&self.table), Arc::clone(&self.branch));
        let limits = AskLimits::default();
        PendingAsk { table, branch, path, raced, seat, member, prompt, conversation, limits }
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
        self.team.prepare::<A>(self.seat.clone(), input, Conversation::default()).answer(read)
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
        self.respond_until(input, &[])
    }

    /// Sends the next prompt and waits for the reply, which ends after the first of the strings `until` that the model writes.
    /// The string belongs to the reply. A reply of a script or an endpoint is cut after the first occurrence of the first of
    /// the strings that it contains.
    ///
    /// # Errors
    ///
    /// See [`Chat::respond`].
    pub fn respond_until<'c>(
        &'c mut self,
        input: &A::Input,
        until: &[&str],
    ) -> impl Future<Output = Result<A::Output, AskError>> + Send + use<'c, 't, A, O> {
        // A copy, so that a cancelled `respond` leaves the conversation unchanged.
        let conversation = self.conversation.clone();
        let mut request = self.team.prepare::<A>(self.seat.clone(), input, conversation);
        request.limits.until = until.iter().map(|&end| end.to_owned()).collect();
        let home = &mut self.conversation;
        async move {
            let (conversation, output) = request.respond(Ok).await;
            *home = conversation;
            output
        }
    }
}

/// An ask with its path and prompt that waits for its reply.
struct PendingAsk<A> {
    table: Arc<EpisodeState>,
    branch: Arc<Branch>,
    path: TurnPath,
    raced: bool,
    seat: Seat,
    member: Option<(Arc<A>, Arc<dyn ChatBackend>)>,
    prompt: Prompt,
    conversation: Conversation,
    limits: AskLimits,
}

impl<A: AgentName> PendingAsk<A> {
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
        let Self { table, branch, path, raced, seat, member, prompt, mut conversation, limits } =
            self;
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
        let seed = table.request_seed(&path, &seat);
        let ask = Ask { seat: seat.clone(), path: path.clone(), seed, prompt, limits };
        let said = match table.respond(&*backend, &mut conversation, ask).await {
            Ok(said) => said,
            Err(fault) => return (conversation, Err(table.fail(fault))),
        };
        let (reply, truncated) = (said.reply.clone(), said.truncated);
        let tokens = said.tokens.as_ref().map_or(0, |tokens| tokens.completion.len());
        table.record(answered_turn(path.clone(), seat, backend.name(), &conversation, said));
        let parsed = if truncated {
            Err(ReplyError::Truncated { tokens })
        } else {
            let Conversation { rendered, tools, .. } = &conversation;
            let reply = backend.reply_format().canonical_reply(&reply, rendered, tools);
            agent.parse(&reply).and_then(read)
        };
        if let Err(error) = &parsed {
            table.reject(&path, error);
        }
        (conversation, parsed.map_err(AskError::Reply))
    }
}

/// Future answer of an orchestra.
type Answering<'a> = BoxFuture<'a, Result<Option<String>, AskError>>;

/// Object-safe form of [`Orchestra`](crate::orchestra::Orchestra).
#[doc(hidden)]
pub trait DynOrchestra: Send + Sync {
    /// Returns the seats of the orchestra.
    fn members(&self) -> Vec<Seat>;
    /// See [`Orchestra::environments`](Orchestra::environments).
    fn environments(&self) -> Vec<String>;
    /// See [`Orchestra::acts`](Orchestra::acts).
    fn acts(&self) -> bool;
    /// See [`Orchestra::passes_on`](Orchestra::passes_on).
    fn passes_on(&self) -> Vec<&'static str>;
    /// See [`Orchestra::sources`](Orchestra::sources).
    fn sources(&self) -> Vec<String>;
    /// See [`Orchestra::ready`](Orchestra::ready).
    fn ready(&self) -> BoxFuture<'_, ()>;
    /// Plays one episode.
    fn run(&self, table: Arc<EpisodeState>) -> Answering<'_>;
}

impl<O: OrchestraName> DynOrchestra for O {
    fn members(&self) -> Vec<Seat> {
        OrchestraName::members(self)
    }

    fn environments(&self) -> Vec<String> {
        Orchestra::environments(self)
    }

    fn acts(&self) -> bool {
        Orchestra::acts(self)
    }

    fn passes_on(&self) -> Vec<&'static str> {
        Orchestra::passes_on(self)
    }

    fn sources(&self) -> Vec<String> {
        Orchestra::sources(self)
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(Orchestra::ready(self))
    }

    fn run(&self, table: Arc<EpisodeState>) -> Answering<'_> {
        Box::pin(async move {
            let team = Team::new(Arc::clone(&table));
            Orchestra::run(self, table.task(), &team).await
        })
    }
}

#[cfg(test)]
mod tests;

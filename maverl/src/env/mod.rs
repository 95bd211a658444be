//! Environments: the world a team acts in, and the judge of its answer.

pub mod code;
pub mod math;
pub mod nli;
pub mod search;
pub mod tools;

use std::future::Future;
use std::path::Path;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::task::{Action, Observation, Score, Task};
use crate::tools::Tool;

/// A world: it answers actions and judges answers. Its fields are its options; heavy state is made in [`Environment::start`].
///
/// One environment serves every episode of a run at once, so `act` takes `&self`; what belongs to one episode is in
/// the [`Session`], which is data, so an environment can be local or behind a wire without the orchestra knowing.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no environment",
    label = "does not implement `Environment`",
    note = "write `impl Environment for {Self}` with `act` and `score`"
)]
pub trait Environment: Send + Sync + 'static {
    /// Looks at the options, and at tasks to be played with them, before anything is started: what `maverl check` says
    /// beside what types say. Gives warnings. Cheap; relative paths in options are relative to `base`, and there may be no
    /// tasks yet.
    ///
    /// # Errors
    ///
    /// If the options cannot be met. A message that begins with an option's name in backticks is shown with its place.
    fn validate(&self, base: &Path, tasks: &[Task]) -> Result<Vec<String>, EnvError> {
        let _ = (base, tasks);
        Ok(Vec::new())
    }

    /// Makes what the options describe (an index, a client), once, before the first episode. Relative paths in
    /// options are relative to `base`.
    ///
    /// # Errors
    ///
    /// If the options cannot be met; the run does not start.
    fn start(&mut self, base: &Path) -> Result<(), EnvError> {
        let _ = base;
        Ok(())
    }

    /// What the user may want to know before these tasks are played: whether they can be solved here at all.
    ///
    /// # Errors
    ///
    /// If the world cannot be looked at; the run does not start.
    fn report(&self, tasks: &[Task]) -> Result<Option<String>, EnvError> {
        let _ = tasks;
        Ok(None)
    }

    /// Word for the share of solved episodes in tables.
    fn measure(&self) -> &'static str {
        "solved"
    }

    /// What agents may call in an episode on `task`, for [`Action::Tool`].
    fn tools(&self, task: &Task) -> Vec<Tool> {
        let _ = task;
        Vec::new()
    }

    /// The state an episode on `task` starts with.
    fn open(&self, task: &Task, seed: u64) -> Value {
        let _ = (task, seed);
        Value::Null
    }

    /// Answers an action. May block its thread: other episodes go on in other threads, and this one ends unscored when
    /// `rollout.timeout_s` have passed (its thread is not taken back).
    ///
    /// # Errors
    ///
    /// Only for failures that are not the policy's: the episode ends unscored. A foolish action gets an observation
    /// that says so.
    fn act(
        &self,
        session: &mut Session,
        action: Action,
    ) -> impl Future<Output = Result<Observation, EnvError>> + Send;

    /// Judges the answer; `None` where the team gave none.
    fn score(&self, session: &Session, answer: Option<&str>) -> Score;

    /// Judges the answer where that takes time or may fail, as running a program does; else it is [`Environment::score`].
    ///
    /// # Errors
    ///
    /// Only for failures that are not the policy's: the episode ends unscored.
    fn judge(
        &self,
        session: &Session,
        answer: Option<&str>,
    ) -> impl Future<Output = Result<Score, EnvError>> + Send {
        async move { Ok(self.score(session, answer)) }
    }
}

/// The registered name of an environment; written by `#[environment]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no environment name",
    label = "not declared with `#[environment]`",
    note = "add `#[environment(name = \"..\")]` above the definition of `{Self}`"
)]
pub trait EnvironmentName: Environment {
    /// One or more snake_case words.
    const NAME: &'static str;
    /// The first line of the type's documentation.
    const SUMMARY: &'static str;
    /// Words of the actions it understands (`offers("search")`).
    const OFFERS: &'static [&'static str];
}

/// One episode's side of an environment, as data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The task being played.
    pub task: Task,
    /// For environments that draw lots.
    pub seed: u64,
    /// Actions so far.
    pub actions: u32,
    /// The environment's own state.
    pub state: Value,
}

/// A failure of an environment that is not the policy's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EnvError(
    /// What happened, and what would help.
    pub String,
);

impl EnvError {
    /// An error with what happened, and what would help.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// An [`Environment`] behind a pointer.
pub trait DynEnvironment: Send + Sync {
    /// See [`Environment::report`].
    fn report(&self, tasks: &[Task]) -> Result<Option<String>, EnvError>;
    /// See [`Environment::measure`].
    fn measure(&self) -> &'static str;
    /// See [`Environment::tools`].
    fn tools(&self, task: &Task) -> Vec<Tool>;
    /// A session for an episode.
    fn open(&self, task: &Task, seed: u64) -> Session;
    /// See [`Environment::act`].
    fn act<'a>(
        &'a self,
        session: &'a mut Session,
        action: Action,
    ) -> BoxFuture<'a, Result<Observation, EnvError>>;
    /// See [`Environment::judge`].
    fn judge<'a>(
        &'a self,
        session: &'a Session,
        answer: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Score, EnvError>>;
}

impl<E: Environment> DynEnvironment for E {
    fn report(&self, tasks: &[Task]) -> Result<Option<String>, EnvError> {
        Environment::report(self, tasks)
    }

    fn measure(&self) -> &'static str {
        Environment::measure(self)
    }

    fn tools(&self, task: &Task) -> Vec<Tool> {
        Environment::tools(self, task)
    }

    fn open(&self, task: &Task, seed: u64) -> Session {
        let state = Environment::open(self, task, seed);
        Session { task: task.clone(), seed, actions: 0, state }
    }

    fn act<'a>(
        &'a self,
        session: &'a mut Session,
        action: Action,
    ) -> BoxFuture<'a, Result<Observation, EnvError>> {
        session.actions += 1;
        Box::pin(Environment::act(self, session, action))
    }

    fn judge<'a>(
        &'a self,
        session: &'a Session,
        answer: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Score, EnvError>> {
        Box::pin(Environment::judge(self, session, answer))
    }
}

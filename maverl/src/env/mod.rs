//! Environments: the part of a task that answers the team's actions and judges its answer.

pub mod code;
pub mod grpc;
pub mod math;
pub mod nli;
pub mod openenv;
mod options;
pub mod python;
#[cfg(any(feature = "grpc", feature = "openenv"))]
mod remote;
pub mod reported;
pub mod search;
pub mod tools;

use std::borrow::Borrow;
use std::fmt::Display;
use std::future::{Future, ready};
use std::path::Path;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::task::{Action, Observation, Score, Task, TaskError, TaskList};
use crate::tools::Tool;

/// Name of the action that reports the reward of an episode; see [`Environment::takes_rewards`].
pub const REPORT: &str = "report";

/// An environment: answers actions and judges answers. Its fields are its options; heavy state is created in
/// [`Environment::start`].
///
/// An episode is `open`, any number of `act`, `score`, `close`. All of them are async and may fail, so an environment can
/// be a local value, a container or a remote service without changes to the orchestra.
///
/// One environment serves all episodes of a run concurrently, so its methods take `&self`. The state of an episode is in
/// its [`Session`], which is plain data.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no environment",
    label = "does not implement `Environment`",
    note = "write `impl Environment for {Self}` with `score`"
)]
pub trait Environment: Send + Sync + 'static {
    /// Validates the options and the tasks before the run starts, and returns warnings. `maverl check` prints the
    /// result. Must be cheap. Relative paths in options are relative to `base`. The list of tasks may be empty, and may have
    /// millions of tasks: keep none of them.
    ///
    /// # Errors
    ///
    /// If the options are invalid. A message that begins with an option's name in backticks is shown with its place.
    fn validate(&self, base: &Path, tasks: &TaskList) -> Result<Vec<String>, EnvError> {
        let _ = (base, tasks);
        Ok(Vec::new())
    }

    /// Returns what tasks of these data (`builtin:facts`) are about, if the environment is not made for them; `check` then
    /// warns. `None` by default.
    fn unsuited(data: &str) -> Option<&'static str> {
        let _ = data;
        None
    }

    /// Creates what the options describe (an index, a client), once, before the first episode. Relative paths in
    /// options are relative to `base`.
    ///
    /// # Errors
    ///
    /// If the options are invalid; the run does not start.
    fn start(&mut self, base: &Path) -> Result<(), EnvError> {
        let _ = base;
        Ok(())
    }

    /// Reports facts about the tasks before a run, such as the share that can be solved in this environment at all.
    ///
    /// # Errors
    ///
    /// If the environment cannot be inspected; the run does not start.
    fn report(&self, tasks: &[Task]) -> Result<Option<String>, EnvError> {
        let _ = tasks;
        Ok(None)
    }

    /// Returns the name of the share of solved episodes in tables.
    fn measure(&self) -> &'static str {
        "solved"
    }

    /// Returns the tools that agents may call in an episode on `task`, for [`Action::Tool`].
    fn tools(&self, task: &Task) -> Vec<Tool> {
        let _ = task;
        Vec::new()
    }

    /// Returns the names of the actions that it understands, if only the started environment knows them, as one behind a
    /// server. `None` if its declaration has them (`offers("search")`), or if they are unknown.
    fn actions(&self) -> Option<Vec<String>> {
        None
    }

    /// Returns what a server keeps or answers in an episode, such as "`grpc` has the sessions". Recorded actions may have other
    /// observations there, and branches of episodes are refused. `None` by default.
    fn served(&self) -> Option<&'static str> {
        None
    }

    /// Returns the names of the files, relative to `base`, that episodes depend on. A run whose files have changed is not resumed.
    fn sources(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns true if an episode on `task` is scored by a reward that the team reports, with the action [`REPORT`].
    fn takes_rewards(&self, task: &Task) -> bool {
        let _ = task;
        false
    }

    /// Opens a session for an episode on `task`, and returns its initial state: data, or the name of what was started
    /// for it, such as a container. The default has no state.
    ///
    /// # Errors
    ///
    /// If the session cannot be opened: the episode ends unscored, without a turn.
    fn open(&self, task: &Task, seed: u64) -> impl Future<Output = Result<Value, EnvError>> + Send {
        let _ = (task, seed);
        ready(Ok(Value::Null))
    }

    /// Returns the question of an episode whose session is open, if it is not that of the task: an environment whose
    /// sessions begin with a text has it here.
    fn question(&self, session: &Session) -> Option<String> {
        let _ = session;
        None
    }

    /// Answers an action. May block its thread: other episodes continue in other threads. The episode ends unscored
    /// after `rollout.timeout_s`; its thread is not interrupted. The default, of an environment that only scores, answers that
    /// there is nothing to do.
    ///
    /// # Errors
    ///
    /// Only for failures that the policy did not cause: the episode ends unscored. An invalid action gets an
    /// observation that describes the problem.
    fn act(
        &self,
        session: &mut Session,
        action: Action,
    ) -> impl Future<Output = Result<Observation, EnvError>> + Send {
        let _ = (session, action);
        ready(Ok(Observation::new("there is nothing to do here but to answer")))
    }

    /// Judges the answer; `None` if the team gave no answer. May block its thread, like [`Environment::act`].
    ///
    /// # Errors
    ///
    /// Only for failures that the policy did not cause: the episode ends unscored. A wrong or malformed answer gets a
    /// score.
    fn score(
        &self,
        session: &Session,
        answer: Option<&str>,
    ) -> impl Future<Output = Result<Score, EnvError>> + Send;

    /// Copies the state of a session, so that the copy and the original go on apart. `None` if it cannot be copied. The default
    /// copies sessions without a state. An environment whose state is all in the session returns a clone of it.
    ///
    /// # Errors
    ///
    /// If the copy fails; the original goes on.
    fn fork(
        &self,
        session: &Session,
    ) -> impl Future<Output = Result<Option<Value>, EnvError>> + Send {
        ready(Ok(session.state.is_null().then_some(Value::Null)))
    }

    /// Closes the session of an episode, and releases what [`Environment::open`] started. Called once for every session
    /// that was opened, after the score, and also if the episode failed, panicked or ran out of time. It is not called
    /// if the process is stopped, so what runs elsewhere should end by a time limit of its own. The default does
    /// nothing.
    ///
    /// # Errors
    ///
    /// If the session cannot be closed: the episode ends unscored.
    fn close(&self, session: Session) -> impl Future<Output = Result<(), EnvError>> + Send {
        let _ = session;
        ready(Ok(()))
    }
}

/// Registered name of an environment; implemented by `#[environment]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no environment name",
    label = "not declared with `#[environment]`",
    note = "add `#[environment]` above the definition of `{Self}`"
)]
pub trait EnvironmentName: Environment {
    /// One or more snake_case words.
    const NAME: &'static str;
    /// First line of the type's documentation.
    const SUMMARY: &'static str;
    /// Names of the actions that it understands (`offers("search")`).
    const OFFERS: &'static [&'static str];
    /// True if it declares a type of tasks. [`EnvironmentName::read_task`] is called only then.
    const READS_TASKS: bool = false;

    /// Reads a task as the type that it declares (`task = Row`); the default declares none.
    ///
    /// # Errors
    ///
    /// See [`Task::parse`].
    fn read_task(task: &Task) -> Result<(), TaskError> {
        let _ = task;
        Ok(())
    }
}

/// State of an environment in one episode, as data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Task of the episode.
    pub task: Task,
    /// Seed for environments that sample.
    pub seed: u64,
    /// Number of actions so far.
    pub actions: u32,
    /// State of the environment itself.
    pub state: Value,
}

/// A failure of an environment that the policy did not cause.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EnvError(
    /// Description of the failure and its remedy.
    pub String,
);

impl EnvError {
    /// Creates an error from a description of the failure and its remedy.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// Creates the error of a task.
    fn of_task(task: &Task, what: impl Display) -> Self {
        Self(format!("the task `{}` of `{}`: {what}", task.id, task.source))
    }
}

/// Checks that every task has an answer to judge by.
fn check_answered(
    tasks: impl IntoIterator<Item = impl Borrow<Task>>,
    is_answered: impl Fn(&Task) -> bool,
) -> Result<(), EnvError> {
    match tasks.into_iter().find(|task| !is_answered(task.borrow())) {
        Some(task) => Err(no_answer(task.borrow())),
        None => Ok(()),
    }
}

/// Returns the error of a task without an answer.
fn no_answer(Task { id, source, .. }: &Task) -> EnvError {
    EnvError(format!(
        "the task `{id}` of `{source}` has no answer to judge by; give its row an `answer`"
    ))
}

impl From<TaskError> for EnvError {
    fn from(error: TaskError) -> Self {
        Self(error.to_string())
    }
}

/// Object-safe form of [`Environment`].
#[doc(hidden)]
pub trait DynEnvironment: Send + Sync {
    /// See [`Environment::report`].
    fn report(&self, tasks: &[Task]) -> Result<Option<String>, EnvError>;
    /// See [`Environment::measure`].
    fn measure(&self) -> &'static str;
    /// See [`Environment::tools`].
    fn tools(&self, task: &Task) -> Vec<Tool>;
    /// See [`Environment::actions`].
    fn actions(&self) -> Option<Vec<String>>;
    /// See [`Environment::sources`].
    fn sources(&self) -> Vec<String>;
    /// See [`Environment::takes_rewards`].
    fn takes_rewards(&self, task: &Task) -> bool;
    /// See [`Environment::question`].
    fn question(&self, session: &Session) -> Option<String>;
    /// Opens a session for an episode; see [`Environment::open`].
    fn open<'a>(&'a self, task: &'a Task, seed: u64) -> BoxFuture<'a, Result<Session, EnvError>>;
    /// See [`Environment::act`].
    fn act<'a>(
        &'a self,
        session: &'a mut Session,
        action: Action,
    ) -> BoxFuture<'a, Result<Observation, EnvError>>;
    /// See [`Environment::score`].
    fn score<'a>(
        &'a self,
        session: &'a Session,
        answer: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Score, EnvError>>;
    /// Returns a session with a copy of the state of another one; see [`Environment::fork`].
    fn fork<'a>(&'a self, session: &'a Session)
    -> BoxFuture<'a, Result<Option<Session>, EnvError>>;
    /// See [`Environment::close`].
    fn close(&self, session: Session) -> BoxFuture<'_, Result<(), EnvError>>;
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

    fn actions(&self) -> Option<Vec<String>> {
        Environment::actions(self)
    }

    fn sources(&self) -> Vec<String> {
        Environment::sources(self)
    }

    fn takes_rewards(&self, task: &Task) -> bool {
        Environment::takes_rewards(self, task)
    }

    fn question(&self, session: &Session) -> Option<String> {
        Environment::question(self, session)
    }

    fn open<'a>(&'a self, task: &'a Task, seed: u64) -> BoxFuture<'a, Result<Session, EnvError>> {
        Box::pin(async move {
            let state = Environment::open(self, task, seed).await?;
            Ok(Session { task: task.clone(), seed, actions: 0, state })
        })
    }

    fn act<'a>(
        &'a self,
        session: &'a mut Session,
        action: Action,
    ) -> BoxFuture<'a, Result<Observation, EnvError>> {
        session.actions += 1;
        Box::pin(Environment::act(self, session, action))
    }

    fn score<'a>(
        &'a self,
        session: &'a Session,
        answer: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Score, EnvError>> {
        Box::pin(Environment::score(self, session, answer))
    }

    fn fork<'a>(
        &'a self,
        session: &'a Session,
    ) -> BoxFuture<'a, Result<Option<Session>, EnvError>> {
        Box::pin(async move {
            let state = Environment::fork(self, session).await?;
            Ok(state.map(|state| Session { state, ..session.clone() }))
        })
    }

    fn close(&self, session: Session) -> BoxFuture<'_, Result<(), EnvError>> {
        Box::pin(Environment::close(self, session))
    }
}

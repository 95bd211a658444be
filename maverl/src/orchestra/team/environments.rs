//! Actions: in the episode's own environment, and in further ones.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use super::{EpisodeState, Team};
use crate::env::{DynEnvironment, EnvError, Session};
use crate::orchestra::AskError;
use crate::orchestra::blocking::poll_blocking;
use crate::orchestra::branch::{Flight, lock};
use crate::task::{Action, Observation, Score, Task};
use crate::tools::Tool;
use crate::trajectory::{Act, Fault, FaultKind, TurnPath};

/// An environment, and the session of an episode in it.
pub(super) struct EnvSession {
    pub(super) environment: Arc<dyn DynEnvironment>,
    /// None before it is opened, and after it is closed.
    session: tokio::sync::Mutex<Option<Session>>,
}

impl EnvSession {
    pub(super) fn new(environment: Arc<dyn DynEnvironment>) -> Self {
        Self { environment, session: tokio::sync::Mutex::default() }
    }

    /// Opens the session. Returns the question of the episode, if it is not that of the task.
    async fn open(&self, task: &Task, seed: u64) -> Result<Option<String>, EnvError> {
        let mut session = self.session.lock().await;
        let opened = poll_blocking(self.environment.open(task, seed)).await?;
        let question = self.environment.question(&opened);
        *session = Some(opened);
        Ok(question)
    }

    pub(super) async fn act(&self, action: Action) -> Result<Observation, EnvError> {
        let mut session = self.session.lock().await;
        let session = session.as_mut().ok_or_else(not_open)?;
        poll_blocking(self.environment.act(session, action)).await
    }

    /// Acts unless an action is under way, for which it does not wait.
    pub(super) async fn act_now(&self, action: Action) -> Result<Observation, EnvError> {
        let busy = |_| EnvError::new("an action is under way; wait for its answer");
        let mut session = self.session.try_lock().map_err(busy)?;
        let session = session.as_mut().ok_or_else(not_open)?;
        poll_blocking(self.environment.act(session, action)).await
    }

    pub(super) async fn score(&self, answer: Option<&str>) -> Result<Score, EnvError> {
        let session = self.session.lock().await;
        let session = session.as_ref().ok_or_else(not_open)?;
        poll_blocking(self.environment.score(session, answer)).await
    }

    async fn close(&self) -> Result<(), EnvError> {
        match self.session.lock().await.take() {
            Some(session) => poll_blocking(self.environment.close(session)).await,
            None => Ok(()),
        }
    }
}

fn not_open() -> EnvError {
    EnvError::new("the session of the episode is not open")
}

impl EpisodeState {
    /// Adds further environments to act in, by name. The task is judged in its own environment.
    #[must_use]
    pub fn with_environments(
        mut self,
        environments: &BTreeMap<String, Arc<dyn DynEnvironment>>,
    ) -> Self {
        let session = |environment: &Arc<_>| EnvSession::new(Arc::clone(environment));
        self.beside = environments.iter().map(|(name, its)| (name.clone(), session(its))).collect();
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
        for (name, beside) in &self.beside {
            beside.open(&self.task, self.seed).await.map_err(|error| of(name, &error))?;
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
        for (name, beside) in &self.beside {
            let done = beside.close().await.map_err(|error| of(name, &error));
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
}

/// Adds the name of a further environment to its error.
fn of(name: &str, error: &EnvError) -> EnvError {
    EnvError::new(format!("environment `{name}`: {error}"))
}

impl<O: ?Sized> Team<O> {
    /// Acts in the environment. Actions of one episode are executed one after another, in the order in which they
    /// arrive. The record of the episode has the action at the place in its branch at which `act` was *called*.
    ///
    /// # Errors
    ///
    /// [`AskError::Fault`] of kind `environment` if the environment fails; the episode then ends unscored.
    pub fn act(
        &self,
        action: Action,
    ) -> impl Future<Output = Result<Observation, AskError>> + Send {
        let place = self.branch.next_act();
        async move {
            let _flight = Flight::start(&self.branch);
            let done = self.table.own.act(action.clone()).await.map_err(|error| {
                self.table.fail(Fault::new(FaultKind::Environment, error.to_string()))
            })?;
            self.table.record_act(place, None, action, &done);
            Ok(done)
        }
    }

    /// Returns the tools that agents may call in this episode.
    pub fn tools(&self) -> Vec<Tool> {
        self.table.own.environment.tools(self.table.task())
    }

    /// Acts in a further environment, by its name in `[environments]`. An orchestra declares the environments it acts
    /// in with [`Orchestra::environments`](crate::orchestra::Orchestra::environments).
    ///
    /// # Errors
    ///
    /// Same as [`Team::act`]; also if there is no environment of this name.
    pub fn act_in(
        &self,
        name: &str,
        action: Action,
    ) -> impl Future<Output = Result<Observation, AskError>> + Send {
        let place = self.branch.next_act();
        async move {
            let _flight = Flight::start(&self.branch);
            let Some(beside) = self.table.beside.get(name) else {
                let names: Vec<&str> = self.table.beside.keys().map(String::as_str).collect();
                let message = format!("no environment is called `{name}`; there are {names:?}");
                return Err(self.table.fail(Fault::new(FaultKind::Orchestra, message)));
            };
            let done = beside.act(action.clone()).await.map_err(|error| {
                let message = of(name, &error).to_string();
                self.table.fail(Fault::new(FaultKind::Environment, message))
            })?;
            self.table.record_act(place, Some(name.to_owned()), action, &done);
            Ok(done)
        }
    }
}

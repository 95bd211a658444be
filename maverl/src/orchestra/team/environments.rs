//! Actions: in the episode's own environment, and in further ones.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use super::{EpisodeState, Team};
use crate::env::{DynEnvironment, Session};
use crate::orchestra::AskError;
use crate::orchestra::blocking::poll_blocking;
use crate::orchestra::branch::{Flight, lock};
use crate::task::{Action, Observation};
use crate::tools::Tool;
use crate::trajectory::{Act, Fault, FaultKind, TurnPath};

/// An environment in addition to the episode's own.
pub(super) struct Beside {
    environment: Arc<dyn DynEnvironment>,
    session: tokio::sync::Mutex<Session>,
}

impl EpisodeState {
    /// Adds further environments to act in, by name. The task is judged in its own environment.
    #[must_use]
    pub fn with_environments(
        mut self,
        environments: &BTreeMap<String, Arc<dyn DynEnvironment>>,
    ) -> Self {
        let open = |environment: &Arc<dyn DynEnvironment>| Beside {
            environment: Arc::clone(environment),
            session: environment.open(&self.task, self.seed).into(),
        };
        self.beside = environments.iter().map(|(name, its)| (name.clone(), open(its))).collect();
        self
    }

    /// Takes the recorded actions, sorted by their place among the turns, at the end of the episode.
    pub(crate) fn take_acts(&self) -> Vec<Act> {
        let mut acts = std::mem::take(&mut *lock(&self.acts));
        acts.sort_by(|a, b| (&a.path, a.nth).cmp(&(&b.path, b.nth)));
        acts
    }

    /// Records an executed action at its place among the turns.
    fn record_act(
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
            let mut session = self.table.session.lock().await;
            let asked = action.clone();
            let done = poll_blocking(self.table.environment.act(&mut session, action)).await;
            let done = done.map_err(|error| {
                self.table.fail(Fault::new(FaultKind::Environment, error.to_string()))
            })?;
            self.table.record_act(place, None, asked, &done);
            Ok(done)
        }
    }

    /// Returns the tools that agents may call in this episode.
    pub fn tools(&self) -> Vec<Tool> {
        self.table.environment.tools(&self.table.task)
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
            let Some(Beside { environment, session }) = self.table.beside.get(name) else {
                let names: Vec<&str> = self.table.beside.keys().map(String::as_str).collect();
                let message = format!("no environment is called `{name}`; there are {names:?}");
                return Err(self.table.fail(Fault::new(FaultKind::Orchestra, message)));
            };
            let asked = action.clone();
            let done = poll_blocking(environment.act(&mut *session.lock().await, action)).await;
            let done = done.map_err(|error| {
                let message = format!("environment `{name}`: {error}");
                self.table.fail(Fault::new(FaultKind::Environment, message))
            })?;
            self.table.record_act(place, Some(name.to_owned()), asked, &done);
            Ok(done)
        }
    }
}

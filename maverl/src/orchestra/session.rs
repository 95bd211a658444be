//! The session of an episode in an environment.

use std::sync::Arc;

use crate::env::{DynEnvironment, EnvError, Session};
use crate::orchestra::blocking::poll_blocking;
use crate::task::{Action, Observation, Score, Task};

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
    pub(super) async fn open(&self, task: &Task, seed: u64) -> Result<Option<String>, EnvError> {
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
        let Ok(mut session) = self.session.try_lock() else {
            return Err(EnvError::new("an action is under way; wait for its answer"));
        };
        let session = session.as_mut().ok_or_else(not_open)?;
        poll_blocking(self.environment.act(session, action)).await
    }

    pub(super) async fn score(&self, answer: Option<&str>) -> Result<Score, EnvError> {
        let session = self.session.lock().await;
        let session = session.as_ref().ok_or_else(not_open)?;
        poll_blocking(self.environment.score(session, answer)).await
    }

    pub(super) async fn close(&self) -> Result<(), EnvError> {
        match self.session.lock().await.take() {
            Some(session) => poll_blocking(self.environment.close(session)).await,
            None => Ok(()),
        }
    }
}

fn not_open() -> EnvError {
    EnvError::new("the session of the episode is not open")
}

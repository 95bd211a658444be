//! Environments of servers that speak `maverl.environment.v1`, over gRPC: the state of an episode is in the server.
//!
//! The [`Session`] has the id of the server's session and the number of steps so far, so that a request which is sent again
//! is executed once.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use maverl_macros::{Settings, environment};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::server::Server;
use crate::client::{DEFAULT_TIMEOUT_S, DEFAULT_URL};
use crate::env::options::{read_key, read_timeout};
use crate::env::{EnvError, Environment, Session};
use crate::task::{Action, Observation, Score, Task, TaskList};
use crate::tools::Tool;

/// Plays in an environment of another maverl, over gRPC: tasks are chosen by their ids, and judged by the server.
#[environment(name = "grpc", offers("act", "tool", "any"))]
#[derive(Settings)]
pub struct GrpcEnvironment {
    /// Address of the server: `http` or `https`.
    #[setting(default = DEFAULT_URL.to_owned())]
    pub url: String,
    /// Environment variable with a key, which is sent as a bearer token; empty for none.
    pub key_env: String,
    /// Certificates in PEM that the server's is checked with; empty for those of public authorities.
    pub ca_file: PathBuf,
    /// Timeout of the connection and of each answer in seconds.
    #[setting(default = DEFAULT_TIMEOUT_S)]
    pub timeout_s: f64,
    /// Number of further attempts of a request whose connection is lost.
    #[setting(default = 3)]
    pub retries: u32,
    /// Set by [`Environment::start`].
    #[serde(skip)]
    server: Option<Server>,
    /// Names of the actions that the server understands, if it lists them. Set by [`Environment::start`].
    #[serde(skip)]
    actions: Option<Vec<String>>,
}

/// State of an episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    /// Id of the server's session.
    session: String,
    /// Question of the episode.
    question: String,
    /// Number of executed steps.
    steps: u32,
}

impl GrpcEnvironment {
    fn started(&self) -> Result<&Server, EnvError> {
        self.server.as_ref().ok_or_else(|| EnvError::new("the environment is not started"))
    }

    /// Creates the client of the server, which is not connected yet.
    fn client(&self, base: &Path) -> Result<Server, EnvError> {
        let ca = if self.ca_file.as_os_str().is_empty() {
            None
        } else {
            let path = base.join(&self.ca_file);
            let read = std::fs::read(&path);
            Some(read.map_err(|error| {
                EnvError(format!("`ca_file`: cannot read {}: {error}", path.display()))
            })?)
        };
        let (key, timeout) = (read_key(&self.key_env)?, read_timeout(self.timeout_s)?);
        Server::new(&self.url, key.as_deref(), ca, timeout, self.retries).map_err(EnvError)
    }
}

/// Reads the state of an episode.
fn state_of(session: &Session) -> Result<State, EnvError> {
    serde_json::from_value(session.state.clone())
        .map_err(|error| EnvError(format!("the session has another state: {error}")))
}

impl Environment for GrpcEnvironment {
    fn validate(&self, base: &Path, _: &TaskList) -> Result<Vec<String>, EnvError> {
        self.client(base)?;
        Ok(Vec::new())
    }

    fn start(&mut self, base: &Path) -> Result<(), EnvError> {
        let server = self.client(base)?;
        self.actions = server.describe()?;
        self.server = Some(server);
        Ok(())
    }

    fn served(&self) -> Option<&'static str> {
        Some("`grpc` has the sessions")
    }

    fn actions(&self) -> Option<Vec<String>> {
        self.actions.clone()
    }

    fn tools(&self, task: &Task) -> Vec<Tool> {
        self.server.as_ref().map(|server| server.tools(task)).unwrap_or_default()
    }

    fn question(&self, session: &Session) -> Option<String> {
        let question = state_of(session).ok()?.question;
        (question != session.task.question).then_some(question)
    }

    async fn open(&self, task: &Task, seed: u64) -> Result<Value, EnvError> {
        let (session, question) = self.started()?.open(task, seed).await?;
        Ok(json!(State { session, question, steps: 0 }))
    }

    async fn act(&self, session: &mut Session, action: Action) -> Result<Observation, EnvError> {
        let mut state = state_of(session)?;
        let seen = self.started()?.act(&state.session, state.steps + 1, action).await?;
        state.steps += 1;
        session.state = json!(state);
        Ok(seen)
    }

    async fn score(&self, session: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        self.started()?.judge(state_of(session)?.session, answer).await
    }

    async fn fork(&self, session: &Session) -> Result<Option<Value>, EnvError> {
        let state = state_of(session)?;
        let copy = self.started()?.fork(&state.session).await?;
        Ok(copy.map(|session| json!(State { session, ..state })))
    }

    async fn close(&self, session: Session) -> Result<(), EnvError> {
        self.started()?.close(state_of(&session)?.session).await
    }
}

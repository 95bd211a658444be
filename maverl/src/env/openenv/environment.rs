//! Environments of servers that speak OpenEnv: a session of an episode is a WebSocket.
//!
//! The state of an episode is in the server. The [`Session`] has the rewards so far, and the number of its socket, which
//! lives beside it.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use maverl_macros::{Settings, environment};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::form::{self, show_observation};
use super::server::Server;
use super::socket::Frame;
use crate::client::{DEFAULT_TIMEOUT_S, DEFAULT_URL};
use crate::env::options::{read_key, read_timeout};
use crate::env::{EnvError, Environment, Session};
use crate::task::{Action, Observation, Score, Task, TaskList};
use crate::tools::Tool;

/// Beginning of a value of `reset` that stands for a value of the task's data.
const OF_DATA: &str = "$data.";
/// Value of `reset` that stands for the id of the task.
const OF_ID: &str = "$id";
/// Failure of a team that goes on after an answer.
const ANSWERED: &str = "an answer ends its episode, and this team goes on after one; a team whose agents are judged by answers \
     of their own needs the environment itself, or one over gRPC";
/// Number of characters of a task's id in the id of an episode, of which servers accept 255.
const LONGEST_ID: usize = 200;

/// Rewards of the steps as the reward of the episode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepRewards {
    /// The last one.
    #[default]
    Last,
    /// Their sum.
    Sum,
    /// The highest one.
    Max,
}

/// Plays in an environment of a server that speaks OpenEnv, which judges the episode too.
#[environment(name = "openenv", offers("act", "tool", "any"))]
#[derive(Settings)]
pub struct OpenEnv {
    /// Address of the server: `http`, `https`, `ws` or `wss`.
    #[setting(default = DEFAULT_URL.to_owned())]
    pub url: String,
    /// Environment variable with a key, which is sent as a bearer token; empty for none.
    pub key_env: String,
    /// Arguments of a reset, beside `seed` and `episode_id`. `"$data.KEY"` is that value of the task's data, `"$id"` its id.
    pub reset: BTreeMap<String, Value>,
    /// Form of an action: `auto`, `json`, or the field that a text becomes.
    #[setting(default = form::AUTO.to_owned())]
    pub action: String,
    /// Text of an observation: `auto`, `json`, or one of its fields.
    #[setting(default = form::AUTO.to_owned())]
    pub observation: String,
    /// Reward of an episode: `last`, `sum` or `max` of those of its steps.
    pub reward: StepRewards,
    /// Reward from which an episode counts as solved.
    #[setting(default = 1.0)]
    pub solved: f64,
    /// Maximum number of concurrent sessions.
    #[setting(default = 16)]
    pub max_sessions: NonZeroUsize,
    /// Timeout of the connection and of each answer in seconds.
    #[setting(default = DEFAULT_TIMEOUT_S)]
    pub timeout_s: f64,
    /// Set by [`Environment::start`].
    #[serde(skip)]
    server: Option<Arc<Server>>,
}

/// State of an episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    /// Number of its socket.
    socket: u64,
    /// Text of the observation after the reset.
    first: String,
    /// Rewards of the steps that had one.
    rewards: Vec<f64>,
    /// Number of steps that the server executed.
    steps: u32,
    done: bool,
}

impl OpenEnv {
    fn started_server(&self) -> Result<&Arc<Server>, EnvError> {
        self.server.as_ref().ok_or_else(|| EnvError::new("the environment is not started"))
    }

    /// Returns the message that begins an episode. All episodes of a task have one seed, so that they begin alike.
    fn reset_of(&self, task: &Task, seed: u64) -> Result<Value, EnvError> {
        let id: String = task.id.chars().take(LONGEST_ID).collect();
        let mut data = Map::new();
        data.insert("seed".to_owned(), seed_of(task).into());
        data.insert("episode_id".to_owned(), format!("{id}-{seed:016x}").into());
        for (name, value) in &self.reset {
            let text = value.as_str();
            let value = match text.and_then(|text| text.strip_prefix(OF_DATA)) {
                Some(key) => task.data.get(key).cloned().ok_or_else(|| {
                    EnvError(format!(
                        "`reset.{name}` is `{OF_DATA}{key}`, which task `{}` lacks",
                        task.id
                    ))
                })?,
                None if text == Some(OF_ID) => task.id.clone().into(),
                None => value.clone(),
            };
            data.insert(name.clone(), value);
        }
        Ok(json!({"type": "reset", "data": data}))
    }

    /// Sends an action, and records its reward. Returns the observation as a text.
    async fn step(&self, state: &mut State, action: Value) -> Result<Observation, EnvError> {
        let server = self.started_server()?;
        let message = json!({"type": "step", "data": action});
        match server.ask(state.socket, &message).await? {
            Frame::Observation { observation, reward, done } => {
                state.steps += 1;
                if let Some(reward) = reward {
                    let bounded = Score::check_bounds("the reward of a step", reward);
                    state.rewards.push(bounded.map_err(|what| server.server_failure(&what))?);
                }
                state.done |= done;
                let text = show_observation(&self.observation, &observation);
                Ok(Observation { text, done: state.done })
            }
            // The server goes on; the team reads what was wrong.
            Frame::Error { code, message }
                if ["EXECUTION_ERROR", "VALIDATION_ERROR"].contains(&code.as_str()) =>
            {
                Ok(Observation::new(format!("error: {message}")))
            }
            Frame::Error { code, message } => {
                Err(server.server_failure(&format!("{code}: {message}")))
            }
        }
    }

    /// Returns the score of an episode by the rewards of its steps.
    fn score_of(&self, state: &State) -> Score {
        let rewards = &state.rewards;
        let reward = match self.reward {
            StepRewards::Last => rewards.last().copied(),
            StepRewards::Sum => Some(rewards.iter().sum()),
            StepRewards::Max => rewards.iter().copied().reduce(f64::max),
        };
        let reward = reward.unwrap_or(0.0);
        let mut metrics = Map::new();
        metrics.insert("steps".to_owned(), state.steps.into());
        metrics.insert("done".to_owned(), u32::from(state.done).into());
        Score { reward, solved: reward >= self.solved, metrics }
    }
}

/// Returns the seed of a task, which fits 31 bits.
fn seed_of(task: &Task) -> u32 {
    let digest = Sha256::digest(format!("{}/{}", task.source, task.id).as_bytes());
    u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]) >> 1
}

/// Reads the state of an episode.
fn state_of(session: &Session) -> Result<State, EnvError> {
    serde_json::from_value(session.state.clone())
        .map_err(|error| EnvError(format!("the session has another state: {error}")))
}

impl Environment for OpenEnv {
    fn validate(&self, _: &Path, tasks: &TaskList) -> Result<Vec<String>, EnvError> {
        crate::client::addresses(&self.url).map_err(|what| EnvError(format!("`url` {what}")))?;
        read_timeout(self.timeout_s)?;
        read_key(&self.key_env)?;
        for (name, form) in [("action", &self.action), ("observation", &self.observation)] {
            if form.trim().is_empty() {
                let what = "is empty; write \"auto\", \"json\" or the name of a field";
                return Err(EnvError(format!("`{name}` {what}")));
            }
        }
        if !self.solved.is_finite() {
            return Err(EnvError(format!("`solved` is {}; write a finite reward", self.solved)));
        }
        tasks.iter().try_for_each(|task| self.reset_of(&task, 0).map(drop))?;
        Ok(Vec::new())
    }

    fn start(&mut self, _: &Path) -> Result<(), EnvError> {
        let (key, timeout) = (read_key(&self.key_env)?, read_timeout(self.timeout_s)?);
        let server = Server::start(&self.url, key, timeout, self.max_sessions)
            .map_err(|what| EnvError(format!("`url`: {what}")))?;
        self.server = Some(Arc::new(server));
        Ok(())
    }

    fn served(&self) -> Option<&'static str> {
        Some("`openenv` has the sessions")
    }

    fn actions(&self) -> Option<Vec<String>> {
        self.server.as_ref()?.actions.clone()
    }

    fn tools(&self, task: &Task) -> Vec<Tool> {
        self.server.as_ref().map(|server| server.tools(task)).unwrap_or_default()
    }

    fn question(&self, session: &Session) -> Option<String> {
        let first = state_of(session).ok()?.first;
        (!first.trim().is_empty()).then(|| {
            if session.task.question.contains(first.trim()) {
                session.task.question.clone()
            } else {
                format!("{}\n\n{first}", session.task.question.trim_end())
            }
        })
    }

    async fn open(&self, task: &Task, seed: u64) -> Result<Value, EnvError> {
        let server = self.started_server()?;
        let (socket, observation, done) = server.open(&self.reset_of(task, seed)?).await?;
        server.store_tools(task, &observation);
        let first = show_observation(&self.observation, &observation);
        Ok(json!(State { socket, first, rewards: Vec::new(), steps: 0, done }))
    }

    async fn act(&self, session: &mut Session, action: Action) -> Result<Observation, EnvError> {
        let mut state = state_of(session)?;
        if state.done {
            let text = "error: the episode is over, and accepts no further action".to_owned();
            return Ok(Observation { text, done: true });
        }
        if self.started_server()?.judged_answer(state.socket).is_some() {
            return Err(self.started_server()?.server_failure(ANSWERED));
        }
        let action = match action {
            Action::Tool { name, arguments } => {
                json!({"type": "call_tool", "tool_name": name, "arguments": arguments})
            }
            Action::Text(text) => match self.started_server()?.form.action(&self.action, &text) {
                Ok(action) => action,
                Err(wanted) => return Ok(Observation::new(format!("error: {wanted}"))),
            },
        };
        let seen = self.step(&mut state, action).await?;
        session.state = json!(state);
        Ok(seen)
    }

    async fn score(&self, session: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        let (state, server) = (state_of(session)?, self.started_server()?);
        let last = answer.filter(|_| !state.done);
        let Some((answer, action)) = last.and_then(|a| Some((a, server.form.answer(a)?))) else {
            return Ok(self.score_of(&state));
        };
        if let Some((judged, score)) = server.judged_answer(state.socket) {
            return if judged == answer { Ok(score) } else { Err(server.server_failure(ANSWERED)) };
        }
        let mut ended = state;
        self.step(&mut ended, action).await?;
        let score = self.score_of(&ended);
        server.store_score(ended.socket, answer, &score);
        Ok(score)
    }

    async fn close(&self, session: Session) -> Result<(), EnvError> {
        let state = state_of(&session)?;
        self.started_server()?.close(state.socket).await;
        Ok(())
    }
}

//! Environments by a class of a Python file: `reset`, `step`, and optionally `score`, `tools`, `fork` and `close`.
//!
//! The state of an episode lives in a process under a key. All episodes of a task have one seed, so that they begin alike.

mod sessions;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use maverl_macros::{Settings, environment};
use serde_json::{Map, Value, json};

use super::{EnvError, Environment, Session};
use crate::python::{ENVIRONMENT, PoolLimits, PythonFile, PythonPool, SourceError};
use crate::task::{Action, Observation, Score, Task, TaskList};
use crate::tools::{Schema, Tool};
use sessions::{PythonSession, PythonSessions};

/// Plays in a class of a Python file, in processes of their own.
#[environment(name = "python", offers("act", "tool", "any"))]
#[derive(Settings)]
pub struct PythonEnvironment {
    /// File of the class. A run whose file has changed is not resumed.
    #[setting(default = "env.py".to_owned())]
    pub file: String,
    /// Name of the class, or of a function that returns an object.
    #[setting(default = "Env".to_owned())]
    pub class: String,
    /// Arguments of the class.
    pub arguments: BTreeMap<String, Value>,
    /// Further files that episodes depend on; `*` stands for any part of a file's name.
    pub watch: Vec<String>,
    /// Interpreter, Python 3.9 or newer: a program of the `PATH`, or a path with a `/`.
    #[setting(default = "python3".to_owned())]
    pub python: String,
    /// Environment variables that are passed on, beside `PATH` and `HOME`.
    pub env: Vec<String>,
    /// Number of processes; an episode stays in one of them.
    #[setting(default = 2)]
    pub workers: NonZeroUsize,
    /// Timeout of a call in seconds. After it the process is killed.
    #[setting(default = 10.0)]
    pub timeout_s: f64,
    /// Time limit for loading the file, in seconds.
    #[setting(default = 60.0)]
    pub start_timeout_s: f64,
    /// Number of times that an episode whose process has ended is played again up to its last action.
    #[setting(default = 2)]
    pub retries: u32,
    /// Reward from which an episode counts as solved, unless `score` says so.
    #[setting(default = 1.0)]
    pub solved: f64,
    /// File to which the output of the processes is appended; empty for none.
    pub log: String,
    /// Set by [`Environment::start`].
    #[serde(skip)]
    sessions: Option<Arc<PythonSessions>>,
}

impl PythonEnvironment {
    fn file(&self, base: &Path) -> PythonFile {
        PythonFile {
            base: base.to_owned(),
            file: self.file.clone(),
            watch: self.watch.clone(),
            python: self.python.clone(),
            env: self.env.clone(),
        }
    }

    fn limits(&self) -> Result<PoolLimits, EnvError> {
        Ok(PoolLimits {
            workers: 1,
            batch: 1,
            timeout: positive_seconds("timeout_s", self.timeout_s)?,
            start_timeout: positive_seconds("start_timeout_s", self.start_timeout_s)?,
            retries: 0,
            give_up_after: self.retries.saturating_add(10),
            probed: 0,
        })
    }

    fn started(&self) -> Result<&PythonSessions, EnvError> {
        let started = self.sessions.as_deref();
        started.ok_or_else(|| EnvError::new("the environment is not started"))
    }

    /// Returns the score that the class gave, or the sum of the rewards of the steps.
    fn score_of(&self, session: &PythonSession, scored: Option<&Value>) -> Result<Score, EnvError> {
        let reward = scored.and_then(|scored| scored["reward"].as_f64());
        let reward = reward.unwrap_or_else(|| session.rewards.iter().sum());
        let solved = scored.and_then(|scored| scored["solved"].as_bool());
        let mut metrics = Map::new();
        metrics.insert("steps".to_owned(), session.actions.len().into());
        metrics.insert("done".to_owned(), u32::from(session.done).into());
        let own = scored.and_then(|scored| scored["metrics"].as_object()).cloned();
        metrics.extend(own.into_iter().flatten());
        Score::check_bounds("the score", reward).map_err(EnvError)?;
        Ok(Score { reward, solved: solved.unwrap_or(reward >= self.solved), metrics })
    }
}

impl Environment for PythonEnvironment {
    fn validate(&self, base: &Path, _: &TaskList) -> Result<Vec<String>, EnvError> {
        self.limits()?;
        let file = self.file(base);
        if !file.path().is_file() {
            let path = file.path();
            return Err(EnvError(format!("`file`: there is no file {}", path.display())));
        }
        file.hashes().map_err(|error| EnvError(format!("`watch`: {error}")))?;
        match file.definitions() {
            Ok(found) if found.unknown || found.names.contains(&self.class) => Ok(Vec::new()),
            Ok(found) => {
                let names = found.names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
                Err(EnvError(format!(
                    "`class`: `{}` defines no `{}`; its names are {}",
                    self.file,
                    self.class,
                    names.join(", ")
                )))
            }
            Err(SourceError::Syntax(error)) => Err(EnvError(format!("`file`: {error}"))),
            Err(SourceError::Interpreter(error)) => Err(EnvError(format!("`python`: {error}"))),
        }
    }

    fn start(&mut self, base: &Path) -> Result<(), EnvError> {
        let arguments = vec![self.class.clone(), json!(self.arguments).to_string()];
        let pools = (0..self.workers.get()).map(|_| {
            PythonPool::start(self.file(base), ENVIRONMENT, arguments.clone(), self.limits()?)
                .map_err(EnvError)
        });
        let pools = pools.collect::<Result<Vec<_>, _>>()?;
        if !self.log.is_empty() {
            for pool in &pools {
                let path = base.join(&self.log);
                pool.write_log(&path).map_err(|error| {
                    EnvError(format!("`log`: cannot write {}: {error}", path.display()))
                })?;
            }
        }
        self.sessions = Some(Arc::new(PythonSessions::new(pools, self.retries)));
        Ok(())
    }

    fn sources(&self) -> Vec<String> {
        self.sessions.as_deref().map(PythonSessions::sources).unwrap_or_default()
    }

    fn tools(&self, _: &Task) -> Vec<Tool> {
        let listed = self.sessions.as_deref().map(PythonSessions::tools).unwrap_or_default();
        listed.iter().filter_map(tool_of).collect()
    }

    fn question(&self, session: &Session) -> Option<String> {
        let first = PythonSession::of(session).ok()?.first?;
        let question = session.task.question.trim_end();
        (!first.trim().is_empty()).then(|| format!("{question}\n\n{first}"))
    }

    async fn open(&self, task: &Task, _: u64) -> Result<Value, EnvError> {
        Ok(json!(self.started()?.open(task).await?))
    }

    async fn act(&self, session: &mut Session, action: Action) -> Result<Observation, EnvError> {
        let mut state = PythonSession::of(session)?;
        if state.done {
            let text = "error: the episode is over, and accepts no further action".to_owned();
            return Ok(Observation { text, done: true });
        }
        let action = match action {
            Action::Text(text) => text.into(),
            Action::Tool { name, arguments } => json!({ "tool": name, "arguments": arguments }),
        };
        let text = self.started()?.step(&session.task, &mut state, action).await?;
        let done = state.done;
        session.state = json!(state);
        Ok(Observation { text, done })
    }

    async fn score(&self, session: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        let state = PythonSession::of(session)?;
        let scored = self.started()?.score(&session.task, &state, answer).await?;
        self.score_of(&state, scored.as_ref())
    }

    async fn fork(&self, session: &Session) -> Result<Option<Value>, EnvError> {
        let state = PythonSession::of(session)?;
        let copy = self.started()?.fork(&session.task, &state).await?;
        Ok(copy.map(|copy| json!(copy)))
    }

    async fn close(&self, session: Session) -> Result<(), EnvError> {
        self.started()?.close(&session.task, &PythonSession::of(&session)?).await;
        Ok(())
    }
}

/// Returns the value of an option as a time.
fn positive_seconds(name: &str, value: f64) -> Result<Duration, EnvError> {
    let time = Duration::try_from_secs_f64(value).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| EnvError(format!("`{name}` is {value}; write seconds above 0")))
}

/// Reads a tool: `{"name", "description", "parameters"}`, alone or as the `function` of OpenAI's form.
fn tool_of(listed: &Value) -> Option<Tool> {
    let listed = listed.get("function").unwrap_or(listed);
    let text = |key: &str| listed[key].as_str().map(str::to_owned);
    let parameters = Schema::of_server(listed["parameters"].clone());
    Some(Tool {
        name: text("name")?,
        description: text("description").unwrap_or_default(),
        parameters,
    })
}

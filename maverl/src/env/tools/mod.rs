//! The tools environment: calls are validated, bounded and executed, and their effects are judged.
//!
//! Changes of an episode (files, a database) are its state, which is plain data. Nothing is written to disk, and
//! episodes do not see each other's state. A call that is invalid or fails gets a description of the problem. It never
//! ends an episode, so a bad call cannot avoid the score.

mod accept;
mod calculator;
mod files;
mod goal;
#[cfg(feature = "mcp")]
mod mcp;
mod options;
mod provider;
mod python;
mod search;
#[cfg(feature = "sqlite")]
mod sqlite;
mod start;
mod state;

pub use options::{FilesOptions, McpServer, PythonOptions, SqliteOptions};

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::Path;

use futures::FutureExt;
use maverl_macros::{Settings, environment};
use serde_json::{Map, Value, json};

use self::goal::Goal;
use self::provider::{CallContext, CallFailure};
use self::start::ToolSet;
use self::state::State;
use super::search::SearchEnvironment;
use super::{EnvError, Environment, Session};
use crate::builtin::facts;
use crate::task::{Action, Observation, Score, Task, TaskList};
use crate::tools::{Call, CallError, Tool, check, read};

/// Maximum total cost of malformed calls: an episode that reaches its goal always earns more than one that does not.
const MAX_COST: f64 = 0.5;

/// Executes tool calls, and judges the answer and the effects of the calls.
#[environment(name = "tools", offers("tool"))]
#[derive(Settings)]
pub struct ToolsEnvironment {
    /// Available tools: calculator, files, python, search, sqlite, and functions declared with `#[tool]`.
    #[setting(default = default_tools())]
    pub tools: Vec<String>,
    /// Maximum number of calls of an episode.
    #[setting(default = 16)]
    pub max_calls: u32,
    /// Maximum length of a result in characters; a longer result is truncated with a notice.
    #[setting(default = 2000)]
    pub max_chars: usize,
    /// Timeout of a function in seconds.
    #[setting(default = 10.0)]
    pub timeout_s: f64,
    /// Cost of each rejected call; all of them together cost at most half of the reward.
    pub bad_call_cost: f64,
    /// Options of the tool `python`.
    pub python: PythonOptions,
    /// Options of the tool `search`: those of the search environment.
    pub search: SearchEnvironment,
    /// Options of the file tools, which `files` stands for.
    pub files: FilesOptions,
    /// Options of the tool `sqlite`.
    pub sqlite: SqliteOptions,
    /// MCP servers whose tools may be called, by names of your choice.
    pub mcp: BTreeMap<String, McpServer>,
    /// Set by [`Environment::start`].
    #[serde(skip)]
    tool_set: ToolSet,
}

/// Returns the tools that need no option and no server.
fn default_tools() -> Vec<String> {
    let sqlite = if cfg!(feature = "sqlite") { Some("sqlite") } else { None };
    ["calculator", "files"].into_iter().chain(sqlite).map(str::to_owned).collect()
}

impl Environment for ToolsEnvironment {
    fn unsuited(data: &str) -> Option<&'static str> {
        facts::subject_of(data)
    }

    fn validate(&self, base: &Path, tasks: &TaskList) -> Result<Vec<String>, EnvError> {
        self.validate_all(base, tasks)
    }

    fn served(&self) -> Option<&'static str> {
        (!self.mcp.is_empty()).then_some("`mcp` has tools")
    }

    fn start(&mut self, base: &Path) -> Result<(), EnvError> {
        self.tool_set = self.make_tools(base)?;
        Ok(())
    }

    fn report(&self, tasks: &[Task]) -> Result<Option<String>, EnvError> {
        self.accept(tasks)?;
        Ok(Some(format!("tools: {}", self.tool_set.names())))
    }

    fn tools(&self, task: &Task) -> Vec<Tool> {
        self.tool_set.offered_tools(task)
    }

    async fn open(&self, task: &Task, _: u64) -> Result<Value, EnvError> {
        Ok(State::open(task).json())
    }

    /// Executes a call, or a text with any number of calls, whose results are listed one below the other.
    async fn act(&self, session: &mut Session, action: Action) -> Result<Observation, EnvError> {
        let calls = match action {
            Action::Tool { name, arguments: Value::Object(arguments) } => {
                vec![Ok(Call { name, arguments })]
            }
            Action::Tool { name, arguments } => {
                let what = format!("they are {arguments}; write an object");
                vec![Err(CallError::Arguments { name, what })]
            }
            Action::Text(text) => match read(&text) {
                calls if calls.is_empty() => vec![Err(CallError::Unreadable(self.cut_text(&text)))],
                calls => calls,
            },
        };
        let mut state = State::read(&session.state)?;
        let mut shown = Vec::with_capacity(calls.len());
        for call in calls {
            shown.push(self.answer(&session.task, &mut state, call).await?);
            if state.calls > self.max_calls {
                break;
            }
        }
        let done = state.calls >= self.max_calls;
        session.state = state.json();
        Ok(Observation { text: shown.join("\n"), done })
    }

    fn measure(&self) -> &'static str {
        "goal met"
    }

    async fn score(&self, session: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        self.score_session(session, answer)
    }

    /// Files and databases of an episode are in its state. What calls change elsewhere, such as in a server of the Model Context
    /// Protocol, all sessions share.
    async fn fork(&self, session: &Session) -> Result<Option<Value>, EnvError> {
        Ok(Some(session.state.clone()))
    }
}

impl ToolsEnvironment {
    /// Returns the result of a call, or a description of the problem with it. Only failures that the policy did not
    /// cause are errors.
    async fn answer(
        &self,
        task: &Task,
        state: &mut State,
        call: Result<Call, CallError>,
    ) -> Result<String, EnvError> {
        state.calls = state.calls.saturating_add(1);
        if state.calls > self.max_calls {
            state.refused += 1;
            return Ok(format!("error: no more than {} calls are carried out", self.max_calls));
        }
        let checked = call.and_then(|call| {
            check(&call, &self.tool_set.offered_tools(task)).map(drop).map(|()| call)
        });
        let call = match checked {
            Ok(call) => call,
            Err(error) => {
                state.refused += 1;
                return Ok(self.cut_text(&format!("error: {error}")));
            }
        };
        let name = call.name.clone();
        let provider = self.tool_set.provider(&name);
        let provider =
            provider.ok_or_else(|| EnvError::new("the tools environment was not started"))?;
        let done =
            AssertUnwindSafe(provider.call(CallContext { task, state }, call)).catch_unwind().await;
        match done {
            Ok(Ok(text)) => Ok(self.cut_text(&text)),
            Ok(Err(CallFailure::World(error))) => Err(error),
            Ok(Err(CallFailure::Call(what))) => {
                state.failed += 1;
                Ok(self.cut_text(&format!("error: {what}")))
            }
            // As a fault it would let a losing policy end the episode unscored.
            Err(_) => {
                state.failed += 1;
                Ok(format!("error: `{name}` broke"))
            }
        }
    }

    /// Truncates a text to `max_chars`.
    fn cut_text(&self, text: &str) -> String {
        match text.char_indices().nth(self.max_chars) {
            None => text.to_owned(),
            Some((end, _)) => {
                let more = text[end..].chars().count();
                format!("{} ... ({more} more characters)", &text[..end])
            }
        }
    }

    fn score_session(&self, session: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        let state = State::read(&session.state)?;
        let solved =
            Goal::read(&session.task)?.is_met(&self.tool_set, &session.task, &state, answer)?;
        let cost = (self.bad_call_cost * f64::from(state.refused)).min(MAX_COST);
        let metrics = Map::from_iter([
            ("calls".to_owned(), json!(f64::from(state.calls))),
            ("refused_calls".to_owned(), json!(f64::from(state.refused))),
            ("failed_calls".to_owned(), json!(f64::from(state.failed))),
        ]);
        let binary = Score::binary(solved);
        Ok(Score { reward: binary.reward - cost, metrics, ..binary })
    }
}

#[cfg(test)]
mod tests;

//! Construction of the tools from the options.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::ToolsEnvironment;
use super::files::Files;
use super::provider::{Function, QueriedRows, ToolProvider};
use super::python::PythonTool;
use super::search::SearchTool;
use super::state::State;
use crate::env::{EnvError, Environment};
use crate::task::{Task, TaskList};
use crate::tools::{Tool, declared_tools};

/// Tools that are ready to be called.
#[derive(Default)]
pub(super) struct ToolSet {
    /// All tools in the order of the options, each with the option's name for it.
    tools: Vec<(String, Tool)>,
    providers: BTreeMap<String, Arc<dyn ToolProvider>>,
}

impl ToolSet {
    fn add(&mut self, name: &str, provider: &Arc<dyn ToolProvider>) -> Result<(), EnvError> {
        for tool in provider.tools() {
            if self.providers.insert(tool.name.clone(), Arc::clone(provider)).is_some() {
                let message =
                    format!("`tools`: two tools are called `{}`; leave one of them out", tool.name);
                return Err(EnvError::new(message));
            }
            self.tools.push((name.to_owned(), tool));
        }
        Ok(())
    }

    /// Returns the tools for an episode on a task: those that the task names in `tools`, by the names of the options;
    /// without `tools`, all.
    pub(super) fn offered_tools(&self, task: &Task) -> Vec<Tool> {
        let named = task.data.get("tools").and_then(Value::as_array);
        let tools = self
            .tools
            .iter()
            .filter(|(name, _)| named.is_none_or(|named| named.iter().any(|one| one == name)));
        tools.map(|(_, tool)| tool.clone()).collect()
    }

    /// Returns the names of all tools.
    pub(super) fn names(&self) -> String {
        self.tools.iter().map(|(_, tool)| tool.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Returns the provider of a tool.
    pub(super) fn provider(&self, name: &str) -> Option<&Arc<dyn ToolProvider>> {
        self.providers.get(name)
    }

    /// Returns the rows of a query on an episode's database.
    pub(super) fn rows(&self, task: &Task, state: &State, query: &str) -> QueriedRows {
        let found = self.providers.values().find_map(|provider| provider.rows(task, state, query));
        found.unwrap_or_else(|| {
            let (id, source) = (&task.id, &task.source);
            let message = format!(
                "the task `{id}` of `{source}` wants rows of a database; add `sqlite` to `tools`"
            );
            Err(EnvError::new(message))
        })
    }
}

/// Names in `tools` that are not functions.
pub(super) const BUILT_IN: [&str; 4] = ["files", "python", "search", "sqlite"];

impl ToolsEnvironment {
    /// Validates the options and the tasks. No server is started.
    pub(super) fn validate_all(
        &self,
        base: &Path,
        tasks: &TaskList,
    ) -> Result<Vec<String>, EnvError> {
        self.bounds()?;
        let mut warnings = Vec::new();
        for name in &self.tools {
            match name.as_str() {
                "python" => warnings.extend(PythonTool::new(&self.python)?.warnings()),
                "search" => {
                    let checked = self.search.validate(base, &TaskList::default());
                    let checked = checked.map_err(|what| EnvError(format!("`search`: {what}")));
                    warnings.extend(checked?);
                }
                name => drop(self.provider(name, base)?),
            }
        }
        self.servers_make_sense()?;
        if self.tools.is_empty() && self.mcp.is_empty() {
            warnings.push("there are no tools: `tools` and `mcp` are empty".to_owned());
        }
        self.accept(tasks.iter())?;
        for (key, tool) in [("database", "sqlite"), ("files", "files")] {
            if tasks.keys().contains(key) && !self.tools.iter().any(|name| name == tool) {
                let needs = tasks.iter().filter(|task| task.data.contains_key(key)).count();
                let all = tasks.len();
                warnings.push(format!(
                    "{needs} of {all} tasks have `{key}`, but `tools` has no `{tool}`"
                ));
            }
        }
        let named = tasks.keys().contains("tools");
        let bare = tasks.iter().filter(|task| named && self.leaves_none(task)).count();
        if bare > 0 {
            let all = tasks.len();
            warnings.push(format!(
                "{bare} of {all} tasks name `tools` of which the environment has none; their episodes can call nothing"
            ));
        }
        Ok(warnings)
    }

    /// Creates what the options describe, and starts the servers.
    pub(super) fn make_tools(&mut self, base: &Path) -> Result<ToolSet, EnvError> {
        self.bounds()?;
        let mut tool_set = ToolSet::default();
        for name in &self.tools {
            let provider: Arc<dyn ToolProvider> = match name.as_str() {
                "python" => Arc::new(PythonTool::new(&self.python)?),
                "search" => {
                    let mut search = std::mem::take(&mut self.search);
                    search.start(base)?;
                    Arc::new(SearchTool(search))
                }
                name => self.provider(name, base)?,
            };
            tool_set.add(name, &provider)?;
        }
        self.servers_make_sense()?;
        #[cfg(feature = "mcp")]
        for provider in super::mcp::start(&self.mcp, base)? {
            let name = provider.name.clone();
            let provider: Arc<dyn ToolProvider> = Arc::new(provider);
            tool_set.add(&name, &provider)?;
        }
        Ok(tool_set)
    }

    /// Returns the provider of a name if it needs no setup.
    fn provider(&self, name: &str, base: &Path) -> Result<Arc<dyn ToolProvider>, EnvError> {
        if name == "files" {
            return Ok(Arc::new(Files::new(&self.files, base)?));
        }
        if name == "sqlite" {
            return self.sqlite_kit(base);
        }
        let functions = declared_tools();
        let Some(function) = functions.get(name) else {
            let known: BTreeSet<&str> = functions.keys().copied().chain(BUILT_IN).collect();
            let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            let known = known.join(", ");
            return Err(EnvError(format!("`tools` has `{name}`, which is none; there is {known}")));
        };
        let limit = Duration::try_from_secs_f64(self.timeout_s).unwrap_or(Duration::MAX);
        Ok(Arc::new(Function::new(function, limit)?))
    }

    #[cfg(feature = "sqlite")]
    fn sqlite_kit(&self, base: &Path) -> Result<Arc<dyn ToolProvider>, EnvError> {
        Ok(Arc::new(super::sqlite::Sqlite::new(&self.sqlite, base)?))
    }

    #[cfg(not(feature = "sqlite"))]
    fn sqlite_kit(&self, _: &Path) -> Result<Arc<dyn ToolProvider>, EnvError> {
        Err(EnvError::new(concat!("`tools` has `sqlite`; ", crate::lacks_feature!("sqlite"))))
    }

    /// Checks the ranges of the numeric options.
    fn bounds(&self) -> Result<(), EnvError> {
        let (timeout, cost, time) = (self.timeout_s, self.bad_call_cost, self.sqlite.seconds);
        let (key, found, wanted) = if self.max_calls == 0 {
            ("max_calls", 0.0, "at least 1")
        } else if self.max_chars == 0 {
            ("max_chars", 0.0, "at least 1")
        } else if !(timeout.is_finite() && timeout > 0.0) {
            ("timeout_s", timeout, "seconds above 0")
        } else if !(cost.is_finite() && cost >= 0.0) {
            ("bad_call_cost", cost, "0 or more")
        } else if !(time.is_finite() && time > 0.0) {
            ("sqlite.seconds", time, "seconds above 0")
        } else {
            return Ok(());
        };
        Err(EnvError(format!("`{key}` is {found}; write {wanted}")))
    }

    /// Checks that each server has exactly one of `command` and `url`.
    fn servers_make_sense(&self) -> Result<(), EnvError> {
        if !cfg!(feature = "mcp") && !self.mcp.is_empty() {
            let message = concat!("`mcp` names servers; ", crate::lacks_feature!("mcp"));
            return Err(EnvError::new(message));
        }
        for (name, server) in &self.mcp {
            let web = ["http://", "https://"].iter().any(|scheme| server.url.starts_with(scheme));
            let what = match (server.command.is_empty(), server.url.is_empty()) {
                (true, true) => "has neither `command` nor `url`; write one of them",
                (false, false) => "has both `command` and `url`; write one of them",
                (true, false) if !web => {
                    "has a `url` that is none; write it whole, as http://127.0.0.1:8000/mcp"
                }
                _ if Duration::try_from_secs_f64(server.timeout_s)
                    .is_ok_and(|limit| !limit.is_zero()) =>
                {
                    continue;
                }
                _ => "has a `timeout_s` that is no time; write seconds above 0",
            };
            return Err(EnvError(format!("`mcp` {name:?} {what}")));
        }
        Ok(())
    }
}

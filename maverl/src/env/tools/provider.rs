//! Execution of tool calls.

use std::future::Future;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::state::State;
use crate::env::EnvError;
use crate::task::Task;
use crate::tools::{Call, DeclaredTool, Schema, Tool};

/// Provides one tool, or several that belong together.
pub(super) trait ToolProvider: Send + Sync {
    /// Returns the tools of the provider.
    fn tools(&self) -> Vec<Tool>;

    /// Executes a call of one of its tools, whose arguments satisfy the schema.
    fn call<'a>(
        &'a self,
        episode: CallContext<'a>,
        call: Call,
    ) -> BoxFuture<'a, Result<String, CallFailure>>;

    /// Returns the rows of a query on an episode's database; `None` for providers without one.
    fn rows(&self, task: &Task, state: &State, query: &str) -> Option<QueriedRows> {
        let _ = (task, state, query);
        None
    }
}

/// Rows of a query; `None` if the episode has made the query invalid.
pub(super) type QueriedRows = Result<Option<Vec<Value>>, EnvError>;

/// Episode that a call belongs to.
pub(super) struct CallContext<'a> {
    pub(super) task: &'a Task,
    pub(super) state: &'a mut State,
}

/// Failure of a call.
#[derive(Debug)]
pub(super) enum CallFailure {
    /// Caused by the call, in words for the model.
    Call(String),
    /// Not caused by the policy: the episode ends unscored.
    World(EnvError),
}

impl From<String> for CallFailure {
    fn from(what: String) -> Self {
        Self::Call(what)
    }
}

impl From<EnvError> for CallFailure {
    fn from(error: EnvError) -> Self {
        Self::World(error)
    }
}

/// Creates a tool from constants.
pub(super) fn tool(name: &str, description: &str, parameters: Value) -> Tool {
    let parameters = Schema::new(parameters).expect("the schemas of built-in tools are understood");
    Tool { name: name.to_owned(), description: description.to_owned(), parameters }
}

/// Creates a tool with one argument, a text that is not empty.
pub(super) fn tool_of_text(name: &str, description: &str, argument: &str) -> Tool {
    let parameters = json!({
        "type": "object",
        "properties": { (argument): {"type": "string", "minLength": 1} },
        "required": [argument],
        "additionalProperties": false,
    });
    tool(name, description, parameters)
}

/// Returns a text argument that the schema allows.
pub(super) fn text<'c>(call: &'c Call, field: &str) -> &'c str {
    call.arguments.get(field).and_then(|value| value.as_str()).unwrap_or_default()
}

/// Runs blocking work on a thread of its own.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CallFailure> {
    let done = tokio::task::spawn_blocking(work).await;
    // The cause of a panic goes to the log; the thread number in it would differ between runs.
    done.map_err(|_| CallFailure::Call("it broke".to_owned()))
}

/// Returns the result of a call, or fails after a timeout.
pub(super) async fn within_limit<T>(
    limit: Duration,
    work: impl Future<Output = T>,
) -> Result<T, CallFailure> {
    tokio::time::timeout(limit, work).await.map_err(|_| {
        CallFailure::Call(format!("it took longer than {} seconds", limit.as_secs_f64()))
    })
}

/// A function declared with `#[tool]`.
pub(super) struct Function {
    tool: Tool,
    declared: &'static DeclaredTool,
    limit: Duration,
}

impl Function {
    pub(super) fn new(declared: &'static DeclaredTool, limit: Duration) -> Result<Self, EnvError> {
        let tool = declared.tool();
        let tool = tool.map_err(|error| {
            EnvError(format!("the tool `{}` ({}): {error}", declared.name, declared.item))
        })?;
        Ok(Self { tool, declared, limit })
    }
}

impl ToolProvider for Function {
    fn tools(&self) -> Vec<Tool> {
        vec![self.tool.clone()]
    }

    fn call<'a>(
        &'a self,
        _: CallContext<'a>,
        call: Call,
    ) -> BoxFuture<'a, Result<String, CallFailure>> {
        Box::pin(async move {
            let given = within_limit(self.limit, (self.declared.call)(call.arguments)).await?;
            given.map_err(CallFailure::Call)
        })
    }
}

//! What carries calls out.

use std::future::Future;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;

use super::state::State;
use crate::env::EnvError;
use crate::task::Task;
use crate::tools::{Call, Declared, Schema, Tool};

/// One tool, or several that belong together.
pub(super) trait ToolProvider: Send + Sync {
    /// What there is to call.
    fn tools(&self) -> Vec<Tool>;

    /// Carries out a call of one of these, whose arguments its schema allows.
    fn call<'a>(
        &'a self,
        episode: Episode<'a>,
        call: Call,
    ) -> BoxFuture<'a, Result<String, Failure>>;

    /// The rows that a query gives on an episode's database; `None` from what has none.
    fn rows(&self, task: &Task, state: &State, query: &str) -> Option<Asked> {
        let _ = (task, state, query);
        None
    }
}

/// The rows of a query; `None` if the episode has made the query meaningless.
pub(super) type Asked = Result<Option<Vec<Value>>, EnvError>;

/// Whose call it is.
pub(super) struct Episode<'a> {
    pub(super) task: &'a Task,
    pub(super) state: &'a mut State,
}

/// Why a call gave nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// The call's own doing, in words for the model.
    Call(String),
    /// Not the policy's doing: the episode ends unscored.
    World(EnvError),
}

impl From<String> for Failure {
    fn from(what: String) -> Self {
        Self::Call(what)
    }
}

impl From<EnvError> for Failure {
    fn from(error: EnvError) -> Self {
        Self::World(error)
    }
}

/// A tool that is made of constants.
pub(super) fn tool(name: &str, description: &str, parameters: Value) -> Tool {
    let parameters = Schema::new(parameters).expect("the schemas of built-in tools are understood");
    Tool { name: name.to_owned(), description: description.to_owned(), parameters }
}

/// A text among arguments that the schema allows.
pub(super) fn text<'c>(call: &'c Call, field: &str) -> &'c str {
    call.arguments.get(field).and_then(|value| value.as_str()).unwrap_or_default()
}

/// Does what may take a while on a thread for that.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    // Why it panicked is for whoever reads the log; its number would differ from run to run.
    done.map_err(|_| Failure::Call("it broke".to_owned()))
}

/// What a call gives in time.
pub(super) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = T>,
) -> Result<T, Failure> {
    let late = |_| format!("it took longer than {} seconds", limit.as_secs_f64());
    tokio::time::timeout(limit, work).await.map_err(late).map_err(Failure::Call)
}

/// A function declared with `#[tool]`.
pub(super) struct Function {
    tool: Tool,
    declared: &'static Declared,
    limit: Duration,
}

impl Function {
    pub(super) fn new(declared: &'static Declared, limit: Duration) -> Result<Self, EnvError> {
        let tool = declared.tool();
        let tool = tool.map_err(|error| {
            EnvError::new(format!("the tool `{}` ({}): {error}", declared.name, declared.item))
        })?;
        Ok(Self { tool, declared, limit })
    }
}

impl ToolProvider for Function {
    fn tools(&self) -> Vec<Tool> {
        vec![self.tool.clone()]
    }

    fn call<'a>(&'a self, _: Episode<'a>, call: Call) -> BoxFuture<'a, Result<String, Failure>> {
        Box::pin(async move {
            let given = within(self.limit, (self.declared.call)(call.arguments)).await?;
            given.map_err(Failure::Call)
        })
    }
}

//! The tool `search`: documents of a corpus, from the search environment.

use futures::future::BoxFuture;
use serde_json::Value;

use super::provider::{CallContext, CallFailure, ToolProvider, text, tool_of_text};
use crate::env::search::SearchEnvironment;
use crate::env::{Environment, Session};
use crate::task::Action;
use crate::tools::{Call, Tool};

/// A started search environment.
pub(super) struct SearchTool(pub(super) SearchEnvironment);

impl ToolProvider for SearchTool {
    fn tools(&self) -> Vec<Tool> {
        vec![tool_of_text("search", "Documents that have the words of a query.", "query")]
    }

    fn call<'a>(
        &'a self,
        episode: CallContext<'a>,
        call: Call,
    ) -> BoxFuture<'a, Result<String, CallFailure>> {
        Box::pin(async move {
            let task = episode.task.clone();
            let mut session = Session { task, seed: 0, actions: 1, state: Value::Null };
            let query = Action::Text(text(&call, "query").to_owned());
            Ok(self.0.act(&mut session, query).await?.text)
        })
    }
}

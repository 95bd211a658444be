//! The tool `search`: documents of a corpus, from the search environment.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::provider::{Episode, Failure, ToolProvider, text, tool};
use crate::env::search::SearchEnvironment;
use crate::env::{Environment, Session};
use crate::task::Action;
use crate::tools::{Call, Tool};

/// A started search environment.
pub(super) struct Search(pub(super) SearchEnvironment);

impl ToolProvider for Search {
    fn tools(&self) -> Vec<Tool> {
        let query = json!({"type": "string", "minLength": 1});
        let parameters = json!({
            "type": "object", "properties": {"query": query}, "required": ["query"], "additionalProperties": false,
        });
        vec![tool("search", "Documents that have the words of a query.", parameters)]
    }

    fn call<'a>(
        &'a self,
        episode: Episode<'a>,
        call: Call,
    ) -> BoxFuture<'a, Result<String, Failure>> {
        Box::pin(async move {
            let task = episode.task.clone();
            let mut session = Session { task, seed: 0, actions: 1, state: Value::Null };
            let query = Action::Text(text(&call, "query").to_owned());
            Ok(self.0.act(&mut session, query).await?.text)
        })
    }
}

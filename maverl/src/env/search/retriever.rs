//! A client of retrievers: `POST {"queries": [..], "topk": k, "return_scores": true}`, as Search-R1, or `{"query": "..", ..}`, as
//! Dr. MAS.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::cache::QueryCache;
use super::protocol::{Question, RetrieverAnswer};
use crate::builtin::Document;
use crate::client::{self, Client};
use crate::env::EnvError;

/// Idle connections that are kept for later queries.
const CONNECTIONS: usize = 64;

/// Protocol of a retriever. The answers are the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetrieverProtocol {
    /// A list of `queries` a request (`search_r1/search/retrieval_server.py` of Search-R1).
    #[default]
    #[serde(rename = "search_r1")]
    SearchR1,
    /// One `query` a request (`examples/search/retriever/retrieval_server.py` of Dr. MAS).
    #[serde(rename = "drmas")]
    DrMas,
}

/// A remote retriever. Every failure is an error of the environment, never text for a model.
pub struct Retriever {
    client: Arc<Client>,
    protocol: RetrieverProtocol,
    kept: QueryCache<Vec<Document>>,
}

impl Retriever {
    /// Creates a client of the server at a URL that caches the documents of the last `cache` queries. A key is sent
    /// with every request as a bearer token.
    pub fn new(
        url: &str,
        key: Option<String>,
        timeout: Duration,
        retries: u32,
        cache: usize,
    ) -> Self {
        let client = Client::new(url.to_owned(), key, timeout, retries, CONNECTIONS);
        let protocol = RetrieverProtocol::default();
        Self { client: Arc::new(client), protocol, kept: QueryCache::new(cache) }
    }

    /// Sets the protocol; the default is that of Search-R1.
    #[must_use]
    pub fn with_protocol(self, protocol: RetrieverProtocol) -> Self {
        Self { protocol, ..self }
    }

    /// Returns the best `k` documents for a query, as ranked by the server. A server that is busy, failing or
    /// unreachable is retried with growing pauses.
    ///
    /// # Errors
    ///
    /// If the server refuses the request, answers something else, or every attempt failed.
    pub async fn search(
        self: &Arc<Self>,
        query: &str,
        k: usize,
    ) -> Result<Vec<Document>, EnvError> {
        if let Some(documents) = self.kept.get(query, k) {
            return Ok(documents);
        }
        let body = json!(match self.protocol {
            RetrieverProtocol::SearchR1 => Question::new(vec![query.to_owned()], k),
            RetrieverProtocol::DrMas => Question::single(query.to_owned(), k),
        });
        let documents = self.client.post(&Arc::new(body)).await.body.and_then(|text| {
            first(&text).map_err(|what| format!("{}: {what}", self.client.address()))
        });
        let mut documents = documents.map_err(|what| EnvError(format!("retriever {what}")))?;
        documents.truncate(k);
        self.kept.put_result(query, k, documents.clone());
        Ok(documents)
    }
}

/// Returns the documents for the first query of an answer.
fn first(text: &str) -> Result<Vec<Document>, String> {
    let answer: RetrieverAnswer = serde_json::from_str(text).map_err(|error| {
        let wanted = "`{\"result\": [[{\"document\": {\"contents\": ..}, \"score\": ..}]]}`";
        format!("answered {}, not {wanted}: {error}", client::start(text))
    })?;
    answer.documents().into_iter().next().ok_or_else(|| "answered no query".to_owned())
}

//! A client of Search-R1's retriever: `POST {"queries": [..], "topk": k, "return_scores": true}`.

use std::sync::Arc;
use std::time::Duration;

use super::kept::Kept;
use super::protocol::{Answer, Question};
use crate::env::EnvError;
use crate::world::Document;

/// Longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Pause before the second attempt; doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Connections that are kept for the next query.
const CONNECTIONS: usize = 64;

/// A retriever somewhere else. Every failure is an error of the environment, never text for a model.
pub struct Retriever {
    url: String,
    agent: ureq::Agent,
    key: Option<String>,
    retries: u32,
    kept: Kept<Vec<Document>>,
}

/// Why one attempt gave no documents.
enum Failure {
    /// Worth another attempt.
    Passing(String),
    Final(String),
}

impl Retriever {
    /// A client of the server at a URL, which keeps the documents of the last `cache` queries.
    pub fn new(url: &str, timeout: Duration, retries: u32, cache: usize) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .max_idle_connections(CONNECTIONS)
            .max_idle_connections_per_host(CONNECTIONS)
            .build();
        let (agent, kept) = (config.into(), Kept::new(cache));
        Self { url: url.to_owned(), agent, key: None, retries, kept }
    }

    /// The same with a key that is sent with every request.
    #[must_use]
    pub fn with_key(self, key: Option<String>) -> Self {
        Self { key, ..self }
    }

    /// The best `k` documents for a query, as the server ranks them. A server that is busy, failing or out of reach is
    /// asked again, with growing pauses.
    ///
    /// # Errors
    ///
    /// If the server refuses, answers something else, or every attempt failed.
    pub async fn search(
        self: &Arc<Self>,
        query: &str,
        k: usize,
    ) -> Result<Vec<Document>, EnvError> {
        if let Some(documents) = self.kept.get(query, k) {
            return Ok(documents);
        }
        let body = Arc::new(Question::new(vec![query.to_owned()], k));
        let mut pause = FIRST_PAUSE;
        for attempt in 0.. {
            let (retriever, body) = (Arc::clone(self), Arc::clone(&body));
            let done = tokio::task::spawn_blocking(move || retriever.ask(&body)).await;
            let failure = done.unwrap_or_else(|error| Err(Failure::Final(error.to_string())));
            match failure {
                Ok(mut documents) => {
                    documents.truncate(k);
                    self.kept.put(query, k, documents.clone());
                    return Ok(documents);
                }
                Err(Failure::Passing(_)) if attempt < self.retries => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
                Err(Failure::Passing(reason) | Failure::Final(reason)) => {
                    let attempts = attempt + 1;
                    let message =
                        format!("retriever `{}`: {reason} ({attempts} attempts)", self.url);
                    return Err(EnvError(message));
                }
            }
        }
        unreachable!("attempts end with `retries`")
    }

    fn ask(&self, body: &Question) -> Result<Vec<Document>, Failure> {
        let mut request = self.agent.post(&self.url);
        if let Some(key) = &self.key {
            request = request.header("Authorization", format!("Bearer {key}"));
        }
        let mut response = request.send_json(body).map_err(failure)?;
        let status = response.status().as_u16();
        let text = response.body_mut().read_to_string().map_err(failure)?;
        match status {
            200 => {}
            500 | 502 | 503 | 504 => {
                return Err(Failure::Passing(format!("status {status}: {}", start(&text))));
            }
            _ => return Err(Failure::Final(format!("status {status}: {}", start(&text)))),
        }
        let answer: Answer = serde_json::from_str(&text).map_err(|error| {
            let wanted = "`{\"result\": [[{\"document\": {\"contents\": ..}, \"score\": ..}]]}`";
            Failure::Final(format!("answered {}, not {wanted}: {error}", start(&text)))
        })?;
        let first = answer.documents().into_iter().next();
        first.ok_or_else(|| Failure::Final("answered no query".to_owned()))
    }
}

/// Timeouts and broken connections may pass; anything else will not.
fn failure(error: ureq::Error) -> Failure {
    use ureq::Error::{ConnectionFailed, HostNotFound, Io, Protocol, Timeout};
    match error {
        Io(_) | Timeout(_) | ConnectionFailed | HostNotFound | Protocol(_) => {
            Failure::Passing(error.to_string())
        }
        error => Failure::Final(error.to_string()),
    }
}

/// The start of what a server said, for messages.
fn start(text: &str) -> String {
    format!("{:?}", text.chars().take(80).collect::<String>())
}

//! Forms of requests for completions: chat completions, text completions, and responses.
//!
//! Every form becomes a call. Its answer is made as a chat completion, and is then written in the form of the request.

mod text;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value};

use super::answer::chunks;
use crate::metrics::Metrics;
use crate::openai::responses::{self, message, refused};
use crate::refusal::Refusal;
use crate::refusal::json_response;
use crate::stream::events;

/// Form of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`: a text that the model continues, without a chat template.
    Text,
    /// `/v1/responses`, without a state on the server.
    Responses,
}

impl Dialect {
    /// Returns the prefix of the ids of answers.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Chat => "chatcmpl",
            Self::Text => "cmpl",
            Self::Responses => "resp",
        }
    }

    /// Returns the request as one for a chat completion. The prompt of a text is its only message.
    pub(super) fn request(
        self,
        mut map: Map<String, Value>,
    ) -> Result<Map<String, Value>, Refusal> {
        match self {
            Self::Chat => Ok(map),
            Self::Text => {
                text::request(&mut map)?;
                Ok(map)
            }
            Self::Responses => responses::request(map),
        }
    }

    /// Sends an answer, in chunks if the client asked for a stream: the reply is complete before its first chunk.
    pub(super) fn respond(
        self,
        answer: &Value,
        streamed: Option<bool>,
        metrics: &Metrics,
    ) -> Response {
        let written = || match self {
            Self::Chat => answer.clone(),
            Self::Text => text::answer(answer),
            Self::Responses => responses::answer(answer),
        };
        let Some(usage) = streamed else { return json_response(StatusCode::OK, &written()) };
        let chunks = match self {
            Self::Chat => chunks(answer, usage),
            Self::Text => text::chunks(&written(), usage),
            Self::Responses => responses::events(&written()),
        };
        events(metrics, move |events| async move {
            for chunk in &chunks {
                if !events.send(chunk).await {
                    return;
                }
            }
            events.done().await;
        })
    }
}

#[cfg(test)]
mod tests;

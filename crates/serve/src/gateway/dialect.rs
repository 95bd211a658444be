//! Forms of requests for completions: chat completions, text completions, and responses.
//!
//! Every form becomes a call. Its answer is made as a chat completion, and is then written in the form of the request.

mod chat;
mod text;

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value};

use crate::metrics::Metrics;
use crate::openai::chat::ChatCompletion;
use crate::openai::responses::{self, response_events};
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
        answer: Arc<ChatCompletion>,
        streamed: Option<bool>,
        metrics: &Metrics,
    ) -> Response {
        let Some(usage) = streamed else { return self.respond_whole(&answer) };
        events(metrics, move |events| async move {
            match self {
                Self::Chat => chat::stream(&answer, usage, &events).await,
                Self::Text => text::stream(&answer, usage, &events).await,
                Self::Responses => {
                    for event in response_events(&answer.as_ref().into()) {
                        if !events.send(&event).await {
                            return;
                        }
                    }
                    events.done().await;
                }
            }
        })
    }

    fn respond_whole(self, answer: &ChatCompletion) -> Response {
        match self {
            Self::Chat => json_response(StatusCode::OK, answer),
            Self::Text => json_response(StatusCode::OK, &text::answer(answer)),
            Self::Responses => json_response(StatusCode::OK, &responses::Response::from(answer)),
        }
    }
}

#[cfg(test)]
mod tests;

//! Forms of requests for completions: chat completions, text completions, responses, and Anthropic's messages.
//!
//! Every form becomes a call. Its answer is made as a chat completion, and is then written in the form of the request.

mod text;

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;

use crate::anthropic::{self, EventWriter, MESSAGE_PREFIX, MessageAnswer, StopReason};
use crate::metrics::ServerMetrics;
use crate::openai::Fields;
use crate::openai::answer::{Extra, Header};
use crate::openai::chat::ChatCompletion;
use crate::openai::responses::{self, response_events};
use crate::openai::writer::{ChunkWriter, StreamWriter, UsageChunks};
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
    /// `/v1/messages`, in Anthropic's protocol.
    Messages,
}

impl Dialect {
    /// Returns the prefix of the ids of answers.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Chat => "chatcmpl",
            Self::Text => "cmpl",
            Self::Responses => "resp",
            Self::Messages => MESSAGE_PREFIX,
        }
    }

    /// Makes a request one for a chat completion. The prompt of a text is its only message.
    pub(super) fn as_chat(self, fields: &mut Fields) -> Result<(), Refusal> {
        match self {
            Self::Chat => Ok(()),
            Self::Text => text::as_chat(fields),
            Self::Responses => responses::as_chat(fields),
            Self::Messages => anthropic::as_chat(fields),
        }
    }

    /// Sends an answer, in chunks if the client asked for a stream: the reply is complete before its first chunk.
    pub(super) fn respond(
        self,
        answer: Arc<ChatCompletion>,
        streamed: Option<bool>,
        metrics: &ServerMetrics,
    ) -> Response {
        let Some(asked) = streamed else { return self.respond_whole(&answer) };
        let usage = if asked { UsageChunks::Last } else { UsageChunks::None };
        events(metrics, move |events| async move {
            match self {
                Self::Chat => {
                    let parts = answer.choices.iter().flat_map(|choice| choice.parts()).collect();
                    let ids = answer.prompt_token_ids.clone();
                    let first = Extra { maverl: None, prompt_token_ids: ids };
                    let writer = ChunkWriter::new(header(&answer), usage, first, &events);
                    stream(writer, parts, &answer).await;
                }
                Self::Text => {
                    let extra = text::extra(&answer);
                    let writer = ChunkWriter::new(header(&answer), usage, extra.clone(), &events);
                    stream(writer.with_later(extra), text::choices(&answer), &answer).await;
                }
                Self::Responses => {
                    for event in response_events(&answer.as_ref().into()) {
                        if !events.send(&event).await {
                            return;
                        }
                    }
                    events.finish_stream().await;
                }
                Self::Messages => {
                    let begun = MessageAnswer::begun_chat(&answer);
                    let writer = EventWriter::new(|| begun, StopReason::MaxTokens, &events);
                    let parts = answer.choices.iter().flat_map(|choice| choice.parts()).collect();
                    stream(writer, parts, &answer).await;
                }
            }
        })
    }

    fn respond_whole(self, answer: &ChatCompletion) -> Response {
        match self {
            Self::Chat => json_response(StatusCode::OK, answer),
            Self::Text => json_response(StatusCode::OK, &text::answer(answer)),
            Self::Responses => {
                json_response(StatusCode::OK, &responses::ResponsesAnswer::from(answer))
            }
            Self::Messages => {
                let answer = MessageAnswer::of_chat(answer, StopReason::MaxTokens);
                json_response(StatusCode::OK, &answer)
            }
        }
    }
}

fn header(answer: &ChatCompletion) -> Header {
    let (id, created, model) = (answer.id.clone(), answer.created, answer.model.clone());
    Header { id, created, model, system_fingerprint: None }
}

/// Sends the parts of an answer.
async fn stream<P>(mut writer: impl StreamWriter<P>, parts: Vec<P>, answer: &ChatCompletion) {
    for part in parts {
        if !writer.write(part).await {
            return;
        }
    }
    writer.finish(answer.usage, None).await;
}

#[cfg(test)]
mod tests;

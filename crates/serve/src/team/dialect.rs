//! Protocols in which a team is asked. Each becomes a chat completion.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;

use super::answer::{header, stream, whole_answer};
use super::request::TeamQuestion;
use super::server::TeamServer;
use crate::anthropic::{self, EventWriter, MESSAGE_PREFIX, MessageAnswer, StopReason, fail_stream};
use crate::openai::answer::{Extra, TokenUsage};
use crate::openai::chat::ChatCompletion;
use crate::openai::writer::{ChunkWriter, UsageChunks};
use crate::openai::{Fields, new_id};
use crate::queue::Admitted;
use crate::refusal::{Refusal, json_response};
use crate::stream::events;

/// Protocol of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TeamDialect {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/messages`
    Messages,
}

impl TeamDialect {
    /// Returns the name of the route in metrics.
    pub(super) fn route(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Messages => "messages",
        }
    }

    /// Makes a request one for a chat completion.
    pub(super) fn as_chat(self, fields: &mut Fields) -> Result<(), Refusal> {
        match self {
            Self::Chat => Ok(()),
            Self::Messages => anthropic::as_chat(fields),
        }
    }

    /// Answers a question, at the end or in parts, as the client asked.
    pub(super) async fn answer(
        self,
        server: &Arc<TeamServer>,
        question: TeamQuestion,
        admitted: Admitted,
    ) -> Result<Response, Refusal> {
        if question.streaming.stream {
            return Ok(self.stream(Arc::clone(server), question, admitted));
        }
        let answer = whole_answer(server, &question, &admitted).await?;
        Ok(match self {
            Self::Chat => json_response(StatusCode::OK, &answer),
            Self::Messages => {
                let answer = ChatCompletion { id: new_id(MESSAGE_PREFIX), ..answer };
                let answer = MessageAnswer::of_chat(&answer, StopReason::MaxTokens);
                json_response(StatusCode::OK, &answer)
            }
        })
    }

    fn stream(
        self,
        server: Arc<TeamServer>,
        question: TeamQuestion,
        admitted: Admitted,
    ) -> Response {
        let metrics = server.metrics.clone();
        events(&metrics, move |events| async move {
            let team = match (self, server.team()) {
                (_, Ok(team)) => team,
                (Self::Chat, Err(refusal)) => return events.fail(&refusal).await,
                (Self::Messages, Err(refusal)) => return fail_stream(&events, &refusal).await,
            };
            match self {
                Self::Chat => {
                    let asked = question.streaming.include_usage;
                    let usage = if asked { UsageChunks::Last } else { UsageChunks::None };
                    let first = Extra::default();
                    let writer = ChunkWriter::new(header(team), usage, first, &events);
                    stream(&server, team, &question, &admitted, writer).await;
                }
                Self::Messages => {
                    let (id, model) = (new_id(MESSAGE_PREFIX), team.name.clone());
                    let begun = MessageAnswer::begun(id, model, TokenUsage::new(0, 0), None);
                    let writer = EventWriter::new(|| begun, StopReason::MaxTokens, &events);
                    stream(&server, team, &question, &admitted, writer).await;
                }
            }
        })
    }
}

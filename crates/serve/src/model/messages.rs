//! `POST /v1/messages` and `/v1/messages/count_tokens`: a chat completion in Anthropic's protocol.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::answer::{AnswerForm as _, Generation, usage};
use super::asked::AdmittedRequest;
use super::chat::{self, ChatForm, ChatPrompt, ChatProtocol};
use super::choice::ReplyBatch;
use super::server::ModelServer;
use crate::anthropic::{
    EventWriter, MESSAGE_PREFIX, MessageAnswer, MessageOrigin, StopReason, TokenCount, as_chat,
    as_prompt,
};
use crate::openai::chat::ChatCompletion;
use crate::openai::new_id;
use crate::openai::requests::ChatRequest;
use crate::openai::writer::StreamWriter as _;
use crate::queue::Admitted;
use crate::refusal::{Refusal, json_response};
use crate::stream::events;

pub(super) async fn route(State(server): State<Arc<ModelServer>>, request: Request) -> Response {
    server.answer("messages", request, |asked| answer(&server, asked)).await
}

pub(super) async fn count(State(server): State<Arc<ModelServer>>, request: Request) -> Response {
    server.answer("count_tokens", request, |asked| count_tokens(&server, asked)).await
}

async fn answer(server: &Arc<ModelServer>, asked: AdmittedRequest) -> Result<Response, Refusal> {
    let of = Arc::clone(server);
    let read = asked.read(move |entry, mut fields| {
        as_chat(&mut fields)?;
        chat::read(&of, entry, fields, ChatProtocol::Anthropic)
    });
    let (chat, admitted) = read.await?;
    if chat.streaming.stream {
        return Ok(stream(chat, server, admitted));
    }
    let answer = chat.whole_answer(server, &admitted).await?;
    let answer = ChatCompletion { id: new_id(MESSAGE_PREFIX), ..answer };
    let answer = MessageAnswer::of_chat(&answer, end_at_length(&chat.batch));
    Ok(json_response(StatusCode::OK, &answer))
}

/// Answers in events.
fn stream(chat: Generation<ChatForm>, server: &Arc<ModelServer>, admitted: Admitted) -> Response {
    let of = Arc::clone(server);
    events(&server.metrics, move |events| async move {
        let begin = || begun(&chat);
        let mut writer = EventWriter::new(begin, end_at_length(&chat.batch), &events);
        match chat.write(&of, &admitted, &mut writer).await {
            Err(refusal) => writer.fail(&refusal).await,
            Ok(None) => {}
            Ok(Some(tokens)) => writer.finish(usage(&chat.batch, tokens), None).await,
        }
    })
}

/// Returns the answer before its reply. Its prompt is computed by then, so that its cached tokens are known.
fn begun(chat: &Generation<ChatForm>) -> MessageAnswer {
    let Generation { batch, choices, form, .. } = chat;
    let extra = form.extra(batch, batch.entry.origin(choices.seed));
    let prompt_token_ids = extra.prompt_token_ids;
    let maverl = MessageOrigin { origin: extra.maverl, prompt_token_ids, token_ids: None };
    let (id, model) = (new_id(MESSAGE_PREFIX), batch.entry.name.clone());
    MessageAnswer::begun(id, model, usage(batch, 0), Some(maverl))
}

/// Returns the reason of the end of a reply with as many tokens as it may have.
fn end_at_length(batch: &ReplyBatch) -> StopReason {
    if batch.fills_context { StopReason::ModelContextWindowExceeded } else { StopReason::MaxTokens }
}

async fn count_tokens(
    server: &Arc<ModelServer>,
    asked: AdmittedRequest,
) -> Result<Response, Refusal> {
    let of = Arc::clone(server);
    let read = asked.read(move |entry, mut fields| {
        as_prompt(&mut fields)?;
        let mut request: ChatRequest = fields.read()?;
        fields.finish(of.settings.strict)?;
        let prompt = ChatPrompt::read(&of, &entry, &mut request, ChatProtocol::Anthropic)?;
        Ok(TokenCount { input_tokens: prompt.ids.len() })
    });
    let (count, _admitted) = read.await?;
    Ok(json_response(StatusCode::OK, &count))
}

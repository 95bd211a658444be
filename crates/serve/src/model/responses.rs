//! `POST /v1/responses`: a chat completion in the form of a response. Nothing is stored.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::answer::Generation;
use super::asked::AdmittedRequest;
use super::chat::{self, ChatForm, ChatProtocol};
use super::server::ModelServer;
use crate::openai::chat::ChatCompletion;
use crate::openai::new_id;
use crate::openai::responses::{self, response_events};
use crate::queue::Admitted;
use crate::refusal::Refusal;
use crate::refusal::json_response;
use crate::stream::events;

pub(super) async fn route(State(server): State<Arc<ModelServer>>, request: Request) -> Response {
    server.answer("responses", request, |asked| answer(&server, asked)).await
}

async fn answer(server: &Arc<ModelServer>, asked: AdmittedRequest) -> Result<Response, Refusal> {
    let of = Arc::clone(server);
    let read = asked.read(move |entry, mut fields| {
        responses::as_chat(&mut fields)?;
        chat::read(&of, entry, fields, ChatProtocol::OpenAi)
    });
    let (chat, admitted) = read.await?;
    if !chat.streaming.stream {
        let answer = whole_response(&chat, server, &admitted).await?;
        return Ok(json_response(StatusCode::OK, &answer));
    }
    let of = Arc::clone(server);
    Ok(events(&server.metrics, move |events| async move {
        match whole_response(&chat, &of, &admitted).await {
            Err(refusal) => events.fail(&refusal).await,
            Ok(answer) => {
                for event in response_events(&answer) {
                    if !events.send(&event).await {
                        return;
                    }
                }
                events.finish_stream().await;
            }
        }
    }))
}

/// Returns the whole answer in the form of a response.
async fn whole_response(
    chat: &Generation<ChatForm>,
    server: &ModelServer,
    admitted: &Admitted,
) -> Result<responses::ResponsesAnswer, Refusal> {
    let answer = chat.whole_answer(server, admitted).await?;
    Ok((&ChatCompletion { id: new_id("resp"), ..answer }).into())
}

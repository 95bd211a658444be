//! `POST /tokenize`, `/detokenize` and `GET /tokenizer_info`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::{Map, Value};

use super::asked::AdmittedRequest;
use super::asked::RouteOutcome;
use super::catalog::Entry;
use super::chat::{render, template_refusal};
use super::server::ModelServer;
use crate::openai::requests::{DetokenizeRequest, TokenizeChat, TokenizeRequest};
use crate::openai::{Fields, Messages, TokenForm, token_text};
use crate::refusal::Refusal;
use crate::refusal::json_response;

pub(super) async fn tokenize(State(server): State<Arc<ModelServer>>, request: Request) -> Response {
    server.answer("tokenize", request, |asked| answer(&server, asked, ids)).await
}

pub(super) async fn detokenize(
    State(server): State<Arc<ModelServer>>,
    request: Request,
) -> Response {
    server.answer("detokenize", request, |asked| answer(&server, asked, text)).await
}

/// Returns the named tokens of the only model, such as `eos_token`: evaluation harnesses then need no files of the tokenizer.
pub(super) async fn info(State(server): State<Arc<ModelServer>>) -> Response {
    let found = server.catalog().and_then(|catalog| catalog.find(None));
    let answer = found.map(|entry| {
        let named = entry.tokenizer().named_tokens();
        let mut told: Map<String, Value> = ["bos_token", "eos_token", "pad_token", "unk_token"]
            .map(|name| (name.to_owned(), Value::Null))
            .into_iter()
            .collect();
        told.extend(named.map(|(name, token)| (name.to_owned(), token.into())));
        told.insert("model_max_length".to_owned(), entry.context().into());
        json_response(StatusCode::OK, &told)
    });
    RouteOutcome { model: String::new(), answer }.count_answer(&server, "tokenizer_info")
}

async fn answer<T: Serialize + 'static>(
    server: &ModelServer,
    asked: AdmittedRequest,
    work: fn(&Entry, &mut Fields) -> Result<T, Refusal>,
) -> Result<Response, Refusal> {
    let strict = server.settings.strict;
    let done = asked.read(move |entry, mut fields| {
        let answer = work(&entry, &mut fields)?;
        fields.finish(strict)?;
        Ok(json_response(StatusCode::OK, &answer))
    });
    let (response, _admitted) = done.await?;
    Ok(response)
}

/// Ids of a text or a conversation.
#[derive(Serialize)]
struct TokenizeAnswer {
    count: usize,
    max_model_len: usize,
    tokens: Vec<u32>,
    token_strs: Option<Vec<String>>,
}

/// Text of ids.
#[derive(Serialize)]
struct DetokenizeAnswer {
    prompt: String,
}

/// Returns the ids of a text or a conversation.
fn ids(entry: &Entry, fields: &mut Fields) -> Result<TokenizeAnswer, Refusal> {
    let tokenizer = entry.tokenizer();
    let TokenizeRequest { return_token_strs, add_special_tokens, prompt } = fields.read()?;
    let ids = match prompt {
        Some(text) => {
            entry.bound_text(&text)?;
            let framed = add_special_tokens != Some(Value::Bool(false));
            if framed { tokenizer.encode_framed(&text) } else { tokenizer.encode(&text) }
        }
        None if !fields.has("messages") => {
            let what = "is missing; write `prompt`, a text, or `messages`";
            return Err(fields.error("prompt", what));
        }
        None => {
            let chat: TokenizeChat = fields.read()?;
            let (Messages(messages), generation) = (chat.messages, chat.add_generation_prompt);
            let variables = chat.chat_template_kwargs.unwrap_or_default();
            let rendered =
                render(entry, messages, &chat.tools, variables, generation.unwrap_or(true))?;
            entry.bound_text(rendered.text())?;
            tokenizer.encode_rendered(&rendered)
        }
    };
    let tokens = ids.map_err(|error| template_refusal(&error))?;
    let texts = tokens.iter().map(|&id| token_text(tokenizer, id, TokenForm::Text));
    Ok(TokenizeAnswer {
        count: tokens.len(),
        max_model_len: entry.context(),
        token_strs: return_token_strs.then(|| texts.collect()),
        tokens,
    })
}

/// Returns the text of ids, special tokens included.
fn text(entry: &Entry, fields: &mut Fields) -> Result<DetokenizeAnswer, Refusal> {
    let request: DetokenizeRequest = fields.read()?;
    let ids = request.tokens.required_ids(entry.vocabulary())?;
    entry.bound_ids(&ids)?;
    Ok(DetokenizeAnswer { prompt: entry.tokenizer().decode_raw(&ids) })
}

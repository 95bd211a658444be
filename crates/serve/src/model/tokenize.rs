//! `POST /tokenize`, `/detokenize` and `GET /tokenizer_info`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::asked::Asked;
use super::asked::Outcome;
use super::catalog::Entry;
use super::chat::{render, unrendered};
use super::server::ModelServer;
use crate::openai::{Fields, TokenForm, Tools, messages, token_text};
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
    Outcome { model: String::new(), answer }.counted(&server, "tokenizer_info")
}

async fn answer(
    server: &ModelServer,
    asked: Asked,
    work: fn(&Entry, &mut Fields) -> Result<Value, Refusal>,
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

/// Returns the ids of a text or a conversation.
fn ids(entry: &Entry, fields: &mut Fields) -> Result<Value, Refusal> {
    let tokenizer = entry.tokenizer();
    let strings = fields.flag("return_token_strs")?;
    let framed = fields.take("add_special_tokens") != Some(Value::Bool(false));
    let ids = match fields.text("prompt")? {
        Some(text) => {
            entry.bound_text(&text)?;
            if framed { tokenizer.encode_framed(&text) } else { tokenizer.encode(&text) }
        }
        None if !fields.has("messages") => {
            let what = "is missing; write `prompt`, a text, or `messages`";
            return Err(fields.error("prompt", what));
        }
        None => {
            let messages = messages(fields)?;
            let name = "add_generation_prompt";
            let add_generation_prompt = !fields.has(name) || fields.flag(name)?;
            let tools = Tools::read(fields)?;
            let variables = match fields.take("chat_template_kwargs") {
                Some(Value::Object(variables)) => variables,
                None => Map::new(),
                Some(other) => {
                    return Err(fields.wrong("chat_template_kwargs", &other, "an object"));
                }
            };
            let rendered = render(entry, messages, &tools, variables, add_generation_prompt)?;
            entry.bound_text(rendered.text())?;
            tokenizer.encode_rendered(&rendered)
        }
    };
    let ids = ids.map_err(|error| unrendered(&error))?;
    let texts: Option<Vec<String>> =
        strings.then(|| ids.iter().map(|&id| token_text(tokenizer, id, TokenForm::Text)).collect());
    Ok(json!({
        "count": ids.len(),
        "max_model_len": entry.context(),
        "tokens": ids,
        "token_strs": texts,
    }))
}

/// Returns the text of ids, special tokens included.
fn text(entry: &Entry, fields: &mut Fields) -> Result<Value, Refusal> {
    let Some(ids) = fields.ids("tokens", entry.vocabulary())? else {
        return Err(fields.error("tokens", "is missing; write a list of token ids"));
    };
    entry.bound_ids(&ids)?;
    Ok(json!({"prompt": entry.tokenizer().decode_raw(&ids)}))
}

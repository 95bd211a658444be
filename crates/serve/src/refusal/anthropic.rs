//! Errors in the form of Anthropic's Messages API: `{"type": "error", "error": {"type", "message"}}`.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::Response;
use serde::Serialize;

use super::{Refusal, to_json};

/// Header with the version of the protocol, which its clients send.
pub(crate) const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// Beginning of the error about a long prompt, by which clients tell it from others.
const TOO_LONG: &str = "prompt is too long: ";

/// Fields of chat completions that a message has under another name.
const NAMES: [(&str, &str); 4] = [
    ("stop", "stop_sequences"),
    ("reasoning_effort", "output_config.effort"),
    ("response_format", "output_config.format"),
    ("parallel_tool_calls", "tool_choice.disable_parallel_tool_use"),
];

/// Body of an answer that is an error.
#[derive(Debug, Serialize)]
pub(crate) struct MessageError<'a> {
    r#type: &'static str,
    error: MessageErrorBody<'a>,
}

/// The error. `param` and `code` are additions to the protocol.
#[derive(Debug, Serialize)]
struct MessageErrorBody<'a> {
    r#type: &'static str,
    message: String,
    param: Option<String>,
    code: &'a str,
}

impl Refusal {
    /// Returns the body of the answer to a client of Anthropic's.
    pub(crate) fn anthropic_answer(&self) -> MessageError<'_> {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            status if status.is_server_error() => "api_error",
            _ => "invalid_request_error",
        };
        let (message, param) = self.own_words();
        let error = MessageErrorBody { r#type: kind, message, param, code: self.code };
        MessageError { r#type: "error", error }
    }

    /// Returns the message and the field as the client knows them.
    fn own_words(&self) -> (String, Option<String>) {
        let Self { message, param, .. } = self;
        if self.code == "context_length_exceeded" && !message.starts_with(TOO_LONG) {
            return (format!("{TOO_LONG}{message}"), param.clone());
        }
        let known = NAMES.iter().find(|(chat, _)| param.as_deref() == Some(chat));
        match known {
            Some((chat, own)) => {
                let message = message.replace(&format!("`{chat}`"), &format!("`{own}`"));
                (message, Some((*own).to_owned()))
            }
            None => (message.clone(), param.clone()),
        }
    }
}

/// Returns true for a request whose client knows Anthropic's form: its path is that of messages, or that of models with the
/// header of Anthropic's version.
pub(crate) fn is_of_anthropic(path: &str, headers: &HeaderMap) -> bool {
    is_below(path, "/v1/messages")
        || is_below(path, "/v1/models") && headers.contains_key(ANTHROPIC_VERSION)
}

/// Returns true for the path of a route, or one below it.
fn is_below(path: &str, route: &str) -> bool {
    let rest = path.split_once(route).map(|(_, rest)| rest);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns an answer to a client of Anthropic's: an error is written in its form.
pub(crate) fn in_form_of_client(mut response: Response) -> Response {
    if let Some(refusal) = response.extensions_mut().remove::<Refusal>() {
        *response.body_mut() = Body::from(to_json(&refusal.anthropic_answer()));
    }
    response
}

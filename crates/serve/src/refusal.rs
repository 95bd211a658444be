//! The error of a request.

mod anthropic;
#[cfg(feature = "grpc")]
pub(crate) mod status;

pub(crate) use anthropic::{ANTHROPIC_VERSION, in_form_of_client, is_of_anthropic};

use std::time::Duration;

use axum::http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// Error of a request, in the shape of OpenAI's: `{"error": {"message", "type", "param", "code"}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: StatusCode,
    /// Name of the error, for programs.
    pub code: &'static str,
    /// Description of the problem and its remedy.
    pub message: String,
    /// Field of the request that is wrong.
    pub param: Option<String>,
    /// Time after which the same request may succeed.
    pub retry_after: Option<Duration>,
    /// False if the same request cannot succeed, so that clients do not retry.
    pub retry: Option<bool>,
    /// Methods that the path accepts, if another was used.
    pub allow: Option<&'static str>,
}

impl Refusal {
    /// Creates an error with a status and a code.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, code, message, param: None, retry_after: None, retry: None, allow: None }
    }

    /// Creates an error about a field of the request: status 400.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        let refusal = Self::new(StatusCode::BAD_REQUEST, "invalid_value", message);
        Self { param: Some(param.into()), ..refusal }
    }

    /// Creates an error about a request that is not of the expected form: status 400.
    pub fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// Creates an error of this server: status 500.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    }

    /// Creates an error for a server that cannot answer now: status 503.
    pub fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message);
        Self { retry_after: Some(Duration::from_secs(1)), ..refusal }
    }

    /// Creates the error about a path that the server does not have; `hint` says where to look.
    pub(crate) fn no_path(uri: &Uri, hint: &str) -> Self {
        let path: String = uri.path().chars().take(80).collect();
        let message = format!("there is nothing at `{path}`; {hint}");
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// Creates the error about a path that takes another method.
    pub(crate) fn other_method(path: &str, method: &Method, allow: &'static str) -> Self {
        let message = format!("`{path}` takes {allow}, not {method}");
        let refusal = Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
        Self { allow: Some(allow), ..refusal }
    }

    /// Returns the error with another code.
    #[must_use]
    pub fn with_code(self, code: &'static str) -> Self {
        Self { code, ..self }
    }

    /// Returns the body of the answer.
    pub(crate) fn answer(&self) -> ErrorAnswer<'_> {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        let Self { message, param, code, .. } = self;
        ErrorAnswer { error: ErrorBody { message, r#type: kind, param: param.as_deref(), code } }
    }
}

/// Body of an answer that is an error.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorAnswer<'a> {
    error: ErrorBody<'a>,
}

#[derive(Debug, Serialize)]
struct ErrorBody<'a> {
    message: &'a str,
    r#type: &'static str,
    param: Option<&'a str>,
    code: &'static str,
}

impl IntoResponse for Refusal {
    /// The refusal is an extension of the response too, so that the body can be written in another form.
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, &self.answer());
        response.extensions_mut().insert(self.clone());
        let headers = response.headers_mut();
        if let Some(after) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        if let Some(retry) = self.retry {
            let value = if retry { "true" } else { "false" };
            headers.insert("x-should-retry", HeaderValue::from_static(value));
        }
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Creates an answer of JSON.
pub(crate) fn json_response(status: StatusCode, body: &impl Serialize) -> Response {
    let header = [(axum::http::header::CONTENT_TYPE, "application/json")];
    (status, header, to_json(body)).into_response()
}

/// Returns a value as JSON.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    // Objects of an answer have texts as keys, without which this would fail.
    serde_json::to_string(value).unwrap_or_default()
}

//! Tools of the environment over the Model Context Protocol: streamable HTTP, whose every answer is one JSON object.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::access::{MOST_BYTES, open, request_without_body};
use super::course::EpisodeCommand;
use super::shared::GatewayState;
use crate::body;
use crate::refusal::Refusal;
use crate::refusal::json_response;
use maverl::task::Action;

/// Version of the protocol for clients that ask for none.
const VERSION: &str = "2025-06-18";

/// Error of a request: a code of JSON-RPC, and a message.
type RpcError = (i32, String);

/// Answers a message. Messages without an id are notifications, which need no answer.
pub(super) async fn route(State(shared): State<Arc<GatewayState>>, request: Request) -> Response {
    let open = match open(&shared, request.uri(), request.headers()) {
        Ok(open) => open,
        Err(refusal) => return refusal.into_response(),
    };
    let message = match body::read(request.into_body(), MOST_BYTES).await {
        Ok(bytes) => match body::bound_values(&bytes) {
            Ok(()) => serde_json::from_slice::<Value>(&bytes),
            Err(refusal) => return refusal.into_response(),
        },
        Err(refusal) => return refusal.into_response(),
    };
    let message = match message {
        Ok(message @ Value::Object(_)) => message,
        Ok(_) => return Refusal::malformed("a message is one JSON object").into_response(),
        Err(error) => {
            return Refusal::malformed(format!("the body is no JSON: {error}")).into_response();
        }
    };
    let Some(id) = message.get("id").filter(|id| !id.is_null()) else {
        return StatusCode::ACCEPTED.into_response();
    };
    let params = &message["params"];
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => Ok(json!({
            "protocolVersion": params["protocolVersion"].as_str().unwrap_or(VERSION),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "maverl", "version": env!("CARGO_PKG_VERSION")},
        })),
        "ping" => Ok(json!({})),
        "tools/list" => request_without_body(Ok(open), EpisodeCommand::Tools)
            .await
            .map(|told| listed_tools(&told))
            .map_err(rpc_failure),
        "tools/call" => match action(params) {
            Ok(action) => {
                let seen =
                    request_without_body(Ok(open), |reply| EpisodeCommand::Act(action, reply))
                        .await;
                seen.map(|seen| call_result(&seen)).map_err(rpc_failure)
            }
            Err(error) => Err(error),
        },
        other => {
            let shown: String = other.chars().take(80).collect();
            Err((-32601, format!("there is no method {shown:?}")))
        }
    };
    let answer = match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err((code, message)) => {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
        }
    };
    json_response(StatusCode::OK, &answer)
}

/// Returns the tools of an answer to `GET /tools` in the form of the protocol.
fn listed_tools(told: &Value) -> Value {
    let tools = told["tools"].as_array().into_iter().flatten().map(|tool| {
        let function = &tool["function"];
        json!({
            "name": function["name"],
            "description": function["description"],
            "inputSchema": function["parameters"],
        })
    });
    json!({"tools": tools.collect::<Vec<_>>()})
}

/// Reads the parameters of a call.
fn action(params: &Value) -> Result<Action, RpcError> {
    let Some(name) = params["name"].as_str() else {
        return Err((-32602, "`name` is missing".to_owned()));
    };
    let arguments = match &params["arguments"] {
        Value::Null => json!({}),
        arguments @ Value::Object(_) => arguments.clone(),
        _ => return Err((-32602, "`arguments` must be an object".to_owned())),
    };
    Ok(Action::Tool { name: name.to_owned(), arguments })
}

/// Returns an observation as the result of a call. A call that failed says so in its text.
fn call_result(seen: &Value) -> Value {
    json!({"content": [{"type": "text", "text": seen["text"]}], "isError": false})
}

fn rpc_failure(refusal: Refusal) -> RpcError {
    (-32603, refusal.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_a_name_and_an_object_of_arguments() {
        let add = json!({"name": "add", "arguments": {"a": 1}});
        let wanted = Action::Tool { name: "add".to_owned(), arguments: json!({"a": 1}) };
        assert_eq!(action(&add), Ok(wanted));
        assert!(action(&json!({"name": "add"})).is_ok());
        for wrong in [json!({}), json!({"name": 1}), json!({"name": "add", "arguments": [1]})] {
            assert_eq!(action(&wrong).map_err(|(code, _)| code), Err(-32602), "{wrong}");
        }
    }
}

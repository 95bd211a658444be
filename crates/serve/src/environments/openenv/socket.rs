//! WebSockets of sessions.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::frames::{Failed, FrameErrorCode};
use super::session::OpenEnvSession;
use crate::environments::server::{EnvironmentServer, MOST_BYTES, ServedEnvironment};
use crate::refusal::Refusal;

type ServerStream = WebSocketStream<TokioIo<Upgraded>>;

/// Answers the request for a WebSocket, which is a session.
pub(super) async fn accept(
    State(server): State<Arc<EnvironmentServer>>,
    request: Request,
) -> Response {
    let served = match server.served_environment() {
        Ok(served) => served,
        Err(refusal) => return refusal.into_response(),
    };
    let Some(key) = key(request.headers()) else {
        let message = "this address is that of WebSockets; send `Upgrade: websocket`, as OpenEnv's clients do";
        let refusal = Refusal::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", message);
        return refusal.into_response();
    };
    tokio::spawn(async move {
        // A client that left has no session.
        if let Ok(upgraded) = hyper::upgrade::on(request).await {
            let config = WebSocketConfig::default()
                .max_message_size(Some(MOST_BYTES))
                .max_frame_size(Some(MOST_BYTES));
            let io = TokioIo::new(upgraded);
            let stream = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
            play(server, served, stream).await;
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, key);
    response
}

/// Returns true if a header has a word in its list.
fn has_word(headers: &HeaderMap, name: HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    let mut words = values.flat_map(|value| value.split(',')).map(str::trim);
    words.any(|word| word.eq_ignore_ascii_case(wanted))
}

/// Returns the answer to the key of a request for a WebSocket.
fn key(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = has_word(headers, CONNECTION, "upgrade")
        && has_word(headers, UPGRADE, "websocket")
        && has_word(headers, SEC_WEBSOCKET_VERSION, "13");
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| asked)?;
    HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok()
}

/// Plays a session, until its client leaves or says nothing for too long.
async fn play(
    server: Arc<EnvironmentServer>,
    served: Arc<ServedEnvironment>,
    mut stream: ServerStream,
) {
    let Some(_place) = server.place() else {
        let (open, most) = (server.sessions(), server.settings.sessions.get());
        let message = format!("Server at capacity: {open}/{most} sessions active");
        let mut frame = Failed::new(FrameErrorCode::Capacity, message).frame();
        frame["data"]["active_sessions"] = open.into();
        frame["data"]["max_sessions"] = most.into();
        send(&mut stream, &frame).await;
        let _ = stream.close(None).await;
        return;
    };
    let timeout = server.settings.timeout;
    // Answers are sent before the next message is read, so that a client that reads nothing has one of them in memory.
    let mut session = OpenEnvSession::new(Arc::clone(&server), served);
    while let Ok(Some(Ok(message))) = tokio::time::timeout(timeout, stream.next()).await {
        let answer = match message {
            Message::Text(text) => session.answer(&text).await,
            Message::Binary(_) => {
                let message = "Invalid JSON: messages are texts";
                Some(Failed::new(FrameErrorCode::InvalidJson, message).frame())
            }
            Message::Close(_) => None,
            // A pong that waits.
            _ if stream.flush().await.is_ok() => continue,
            _ => break,
        };
        let Some(answer) = answer else { break };
        if !send(&mut stream, &answer).await {
            break;
        }
    }
    session.close().await;
    let _ = stream.close(None).await;
}

/// Returns false if the client is gone.
async fn send(stream: &mut ServerStream, frame: &Value) -> bool {
    stream.send(Message::Text(frame.to_string().into())).await.is_ok()
}

//! A WebSocket of a session: one answer to each message, in order.

use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use crate::env::remote::late;

/// Maximum size of a message in bytes, as OpenEnv's own clients have it.
const MOST_BYTES: usize = 100 << 20;
/// Maximum size in bytes of what a server has not read yet.
const UNREAD_BYTES: usize = 16 << 20;
/// Time for the end of a session that is closed.
const CLOSING: Duration = Duration::from_secs(2);
/// Number of characters of an answer that messages show.
const SHOWN: usize = 200;

type ClientStream = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A message to the server.
struct SocketCommand {
    message: String,
    /// Time in which it is answered, or the session ends.
    limit: Duration,
    reply: oneshot::Sender<Result<Utf8Bytes, String>>,
}

/// A connection, which a task of its own reads: pings are answered while a team thinks. Dropping it closes the session.
pub(super) struct Socket {
    commands: mpsc::Sender<SocketCommand>,
    task: JoinHandle<()>,
}

/// An answer of a server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Frame {
    /// An observation, with its reward if there is one.
    Observation { observation: Value, reward: Option<f64>, done: bool },
    /// A failure with its code, such as `EXECUTION_ERROR`.
    Error { code: String, message: String },
}

impl Socket {
    /// Connects to an address. A key is sent as a bearer token.
    ///
    /// # Errors
    ///
    /// If there is no WebSocket at the address within the time.
    pub(super) async fn connect(
        url: &str,
        key: Option<&str>,
        limit: Duration,
    ) -> Result<Self, String> {
        let mut request = url.into_client_request().map_err(|error| error.to_string())?;
        if let Some(key) = key {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
                .map_err(|_| "the key has characters that no header can have".to_owned())?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        let config = WebSocketConfig::default()
            .max_message_size(Some(MOST_BYTES))
            .max_write_buffer_size(UNREAD_BYTES)
            .max_frame_size(Some(MOST_BYTES));
        let connected = connect_async_with_config(request, Some(config), true);
        let connected = tokio::time::timeout(limit, connected).await;
        let (stream, _) = connected.map_err(|_| late(limit))?.map_err(|error| error.to_string())?;
        let (commands, received) = mpsc::channel(1);
        Ok(Self { commands, task: tokio::spawn(speak(stream, received)) })
    }

    /// Returns the sender of messages.
    pub(super) fn sender(&self) -> Sender {
        Sender(self.commands.clone())
    }

    /// Closes the session, and waits for its end for a moment.
    pub(super) async fn close(self) {
        drop(self.commands);
        let mut task = self.task;
        if tokio::time::timeout(CLOSING, &mut task).await.is_err() {
            task.abort();
        }
    }
}

/// Sender of messages to a session.
#[derive(Clone)]
pub(super) struct Sender(mpsc::Sender<SocketCommand>);

impl Sender {
    /// Sends a message, and returns its answer.
    ///
    /// # Errors
    ///
    /// If the connection has ended, or there is no answer within the time.
    pub(super) async fn ask(&self, message: &Value, limit: Duration) -> Result<Frame, String> {
        let ended = "the connection has ended";
        let asked = async {
            let (reply, answer) = oneshot::channel();
            // Longer than the wait below, so that an answer stays paired with its message.
            let limit = limit.saturating_mul(2);
            let command = SocketCommand { message: message.to_string(), limit, reply };
            self.0.send(command).await.map_err(|_| ended)?;
            answer.await.map_err(|_| ended)?
        };
        let answer = tokio::time::timeout(limit, asked).await.map_err(|_| late(limit))??;
        Frame::read(&answer)
    }
}

impl Frame {
    /// Reads an answer.
    fn read(text: &str) -> Result<Self, String> {
        let frame: Value = serde_json::from_str(text).unwrap_or_default();
        let data = &frame["data"];
        match frame["type"].as_str() {
            Some("observation") => {
                let reward = match &data["reward"] {
                    Value::Null => None,
                    Value::Bool(right) => Some(f64::from(*right)),
                    reward => Some(reward.as_f64().ok_or_else(|| {
                        let shown: String = reward.to_string().chars().take(SHOWN).collect();
                        format!("the reward of an observation is {shown}, which is no number")
                    })?),
                };
                let (observation, done) = (data["observation"].clone(), data["done"] == true);
                Ok(Self::Observation { observation, reward, done })
            }
            Some("error") => {
                let [code, message] = ["code", "message"].map(|key| data[key].as_str());
                let mut message = message.unwrap_or_default().to_owned();
                let problems = data["errors"].as_array().into_iter().flatten();
                for problem in problems.filter_map(|problem| problem["msg"].as_str()) {
                    message = format!("{message}: {problem}");
                }
                Ok(Self::Error { code: code.unwrap_or_default().to_owned(), message })
            }
            _ => {
                let shown: String = text.chars().take(SHOWN).collect();
                Err(format!("the answer is {shown:?}, which is no observation"))
            }
        }
    }
}

/// Sends messages and passes on their answers, until the last sender is gone or the connection ends.
async fn speak(mut stream: ClientStream, mut commands: mpsc::Receiver<SocketCommand>) {
    // A server that refuses a session says so before it is asked.
    let mut unasked = None;
    loop {
        let command = tokio::select! {
            command = commands.recv() => command,
            frame = stream.next(), if unasked.is_none() => match frame {
                Some(Ok(Message::Text(text))) => {
                    unasked = Some(text);
                    continue;
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => continue,
            },
        };
        let Some(SocketCommand { message, limit, reply }) = command else { break };
        let answer = match unasked.take() {
            Some(text) => Ok(text),
            None => {
                let answer = tokio::time::timeout(limit, exchange(&mut stream, message)).await;
                answer.unwrap_or_else(|_| Err(late(limit)))
            }
        };
        let failed = answer.is_err();
        // A sender that is gone needs no answer; it stays paired with its message.
        let _ = reply.send(answer);
        if failed {
            return;
        }
    }
    let closing = async {
        let _ = stream.send(Message::Text("{\"type\":\"close\"}".into())).await;
        let _ = stream.close(None).await;
        // The session has ended when the server ends the connection.
        while let Some(Ok(_)) = stream.next().await {}
    };
    let _ = tokio::time::timeout(CLOSING, closing).await;
}

async fn exchange(stream: &mut ClientStream, message: String) -> Result<Utf8Bytes, String> {
    // A server that refused the session has closed it, and its reason is still to be read.
    let sent = stream.send(Message::Text(message.into())).await;
    loop {
        match stream.next().await {
            Some(Ok(Message::Text(text))) => return Ok(text),
            Some(Ok(Message::Close(_))) | None => {
                let reason = sent.err().map(|error| format!(": {error}")).unwrap_or_default();
                return Err(format!("the server closed the connection{reason}"));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod hostile;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_an_observation_or_an_error_with_its_code() {
        let read = |frame: Value| Frame::read(&frame.to_string());
        let seen = |reward: Value| json!({"type": "observation", "data": {"observation": {"a": 1}, "reward": reward, "done": true}});
        for (reward, number) in
            [(json!(null), None), (json!(1), Some(1.0)), (json!(true), Some(1.0))]
        {
            let observation = json!({"a": 1});
            let frame = Frame::Observation { observation, reward: number, done: true };
            assert_eq!(read(seen(reward)), Ok(frame));
        }
        for wrong in [json!("1.0"), json!([1.0]), json!({"value": 1})] {
            let refused = read(seen(wrong.clone())).unwrap_err();
            assert!(refused.contains(&format!("is {wrong}, which is no number")), "{refused}");
        }
        let error = json!({"type": "error", "data": {
            "message": "Invalid message", "code": "VALIDATION_ERROR", "errors": [{"msg": "Field required"}],
        }});
        let frame = Frame::Error {
            code: "VALIDATION_ERROR".to_owned(),
            message: "Invalid message: Field required".to_owned(),
        };
        assert_eq!(read(error), Ok(frame));
        assert!(Frame::read("[1]").unwrap_err().contains("no observation"));
    }
}

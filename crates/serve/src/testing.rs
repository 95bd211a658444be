//! A server on a free port, and a client that writes bytes.
#![allow(clippy::unwrap_used)]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use axum::Router;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::listener::{Limits, Listener};

/// A running server; dropping it stops the server.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

/// Starts a router on a free port.
pub(crate) async fn start(router: Router, limits: Limits) -> Running {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    tokio::spawn(Listener::new(socket, limits).serve(router, async move {
        let _ = stopped.await;
    }));
    Running { address, _stop: stop }
}

/// An answer as it came.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Status line and headers, in lower case.
    pub(crate) head: String,
    /// The body, without its transfer encoding.
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// Returns the message of an error in OpenAI's shape.
    pub(crate) fn message(&self) -> String {
        let json = self.json();
        json["error"]["message"].as_str().unwrap_or_else(|| panic!("no error: {json}")).to_owned()
    }

    /// Returns the data of server-sent events.
    pub(crate) fn events(&self) -> Vec<String> {
        let lines = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.map(str::to_owned).collect()
    }
}

/// Longest wait of a test, which no busy machine exceeds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// Returns the stride through the cases of a test: `n` in the first tier, 1 in the second (`MAVERL_FULL`).
pub(crate) fn stride(n: usize) -> usize {
    if std::env::var_os("MAVERL_FULL").is_some() { 1 } else { n }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !holds().await {
        assert!(begin.elapsed() < PATIENCE, "{what} does not happen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Sends bytes, and reads to the end of the connection.
pub(crate) fn exchange(address: SocketAddr, sent: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A server may refuse a request before it has read all of it.
    let _ = stream.write_all(sent);
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let head = head.to_lowercase();
    let chunked = head.contains("transfer-encoding: chunked");
    let body = if chunked { joined(body) } else { body.to_owned() };
    Answer { status, head, body }
}

/// Joins the chunks of a body.
fn joined(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        body.push_str(&after[..size]);
        rest = after[size..].strip_prefix("\r\n").unwrap();
    }
    body
}

/// Sends a request with a JSON body, or GET without one, on a thread of its own.
pub(crate) async fn ask(address: SocketAddr, path: &str, body: Option<&Value>) -> Answer {
    let sent = request(path, body, "");
    tokio::task::spawn_blocking(move || exchange(address, sent.as_bytes())).await.unwrap()
}

/// Returns the bytes of a request, with further header lines.
pub(crate) fn request(path: &str, body: Option<&Value>, headers: &str) -> String {
    let head = format!("host: localhost\r\nconnection: close\r\n{headers}");
    match body {
        None => format!("GET {path} HTTP/1.1\r\n{head}\r\n"),
        Some(body) => {
            let body = body.to_string();
            let length = body.len();
            format!("POST {path} HTTP/1.1\r\n{head}content-length: {length}\r\n\r\n{body}")
        }
    }
}

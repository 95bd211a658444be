//! A small HTTP server for tests of clients.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// A request that the server got.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// The first line and the headers.
    pub(crate) head: String,
    /// The body; null if it is no JSON.
    pub(crate) body: Value,
}

/// Requests that the server got, in their order.
pub(crate) type Log = Arc<Mutex<Vec<Received>>>;

impl Received {
    fn read(stream: &TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        for line in reader.by_ref().lines().map_while(Result::ok) {
            if let Some(n) = line.to_lowercase().strip_prefix("content-length:") {
                length = n.trim().parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
            head += &(line + "\n");
        }
        let mut body = vec![0; length];
        // The client may disconnect early.
        let whole = reader.read_exact(&mut body).is_ok();
        let body = serde_json::from_slice(&body).ok().filter(|_| whole).unwrap_or_default();
        Self { head, body }
    }

    /// Returns the path of the request.
    pub(crate) fn route(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}

/// Starts a server that answers each request, of which it knows the number from 0, with bytes; none close the connection.
/// Returns its address, without a path, and what it received.
pub(crate) fn serve(
    mut answer: impl FnMut(usize, &Received) -> Vec<u8> + Send + 'static,
) -> (String, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let log = Log::default();
    let seen = Arc::clone(&log);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let received = Received::read(&stream);
            let number = {
                let mut seen = seen.lock().unwrap();
                seen.push(received.clone());
                seen.len() - 1
            };
            // The client may disconnect early.
            let _ = stream.write_all(&answer(number, &received));
        }
    });
    (url, log)
}

/// Starts a server that gives each request the next of these answers, and then closes connections.
pub(crate) fn serve_each(answers: Vec<(u16, &'static str)>) -> (String, Log) {
    serve(move |number, _| {
        answers.get(number).map_or_else(Vec::new, |(status, body)| response(*status, body))
    })
}

/// Returns an HTTP response with a status and a body.
pub(crate) fn response(status: u16, body: &str) -> Vec<u8> {
    response_with(&format!("{status} X\r\nContent-Type: application/json"), body.as_bytes())
}

/// Returns an HTTP response with a status line and headers, and a body.
pub(crate) fn response_with(head: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {head}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// Starts a server that redirects every request to another one. Returns its address, and what the other one was sent.
pub(crate) fn serve_redirects(status: u16) -> (String, Log) {
    let (elsewhere, asked) = serve(|_, _| response(200, "{}"));
    let moved = response_with(&format!("{status} X\r\nLocation: {elsewhere}/v1"), b"");
    (serve(move |_, _| moved.clone()).0, asked)
}

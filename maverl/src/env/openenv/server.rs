//! A server of OpenEnv: its schema and tools, and the sockets of the open sessions.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::form::ActionForm;
use super::socket::{Frame, Socket};
use crate::client::{Client, addresses};
use crate::env::{EnvError, remote};
use crate::tools::{Schema, Tool};

/// Pauses before another attempt of a session that the server has no room for: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];

/// A server, and the sessions on it.
pub(super) struct Server {
    /// Address of WebSockets.
    ws: String,
    key: Option<String>,
    timeout: Duration,
    pub(super) form: ActionForm,
    pub(super) tools: Vec<Tool>,
    places: Arc<Semaphore>,
    sockets: Mutex<BTreeMap<u64, (Socket, OwnedSemaphorePermit)>>,
    next: AtomicU64,
}

impl Server {
    /// Reads the schema and the tools of a server. Blocks the thread.
    pub(super) fn start(
        url: &str,
        key: Option<String>,
        timeout: Duration,
        sessions: NonZeroUsize,
    ) -> Result<Self, String> {
        let (http, ws) = addresses(url)?;
        // One TLS provider for the process; an already installed one stays.
        drop(rustls::crypto::ring::default_provider().install_default());
        let schema = Client::new(format!("{http}/schema"), key.clone(), timeout, 0, 1).get()?;
        let schema: Value = serde_json::from_str(&schema)
            .map_err(|error| format!("{http}/schema answered no JSON: {error}"))?;
        let form = ActionForm::of_schema(&schema["action"]);
        let tools = match form.calls_tools() {
            true => listed(&ws, key.as_deref(), timeout)?,
            false => Vec::new(),
        };
        Ok(Self {
            ws,
            key,
            timeout,
            form,
            tools,
            places: Arc::new(Semaphore::new(sessions.get())),
            sockets: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// Opens a session with a reset. Returns its number, the first observation, and true if the episode is over already.
    /// Waits for a place, and for a server that has no room.
    pub(super) async fn open(&self, reset: &Value) -> Result<(u64, Value, bool), EnvError> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|closed| EnvError(closed.to_string()))?;
        let (until, mut pause) = (Instant::now() + self.timeout, PAUSES[0]);
        loop {
            let connected = Socket::connect(&self.ws, self.key.as_deref(), self.timeout).await;
            let socket = connected.map_err(|what| self.failed(&what))?;
            let answer = socket.sender().ask(reset, self.timeout).await;
            match answer.map_err(|what| self.failed(&what))? {
                Frame::Observation { observation, done, .. } => {
                    let number = self.next.fetch_add(1, Ordering::Relaxed);
                    self.sockets().insert(number, (socket, place));
                    return Ok((number, observation, done));
                }
                Frame::Error { code, .. }
                    if code == "CAPACITY_REACHED" && Instant::now() + pause < until =>
                {
                    socket.close().await;
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSES[1]);
                }
                Frame::Error { code, message } => {
                    return Err(self.failed(&format!("no reset: {code}: {message}")));
                }
            }
        }
    }

    /// Sends a message of a session, and returns its answer.
    pub(super) async fn ask(&self, number: u64, message: &Value) -> Result<Frame, EnvError> {
        let sender = self.sockets().get(&number).map(|(socket, _)| socket.sender());
        let sender = sender.ok_or_else(|| self.failed("the session is not open"))?;
        sender.ask(message, self.timeout).await.map_err(|what| self.failed(&what))
    }

    /// Closes a session.
    pub(super) async fn close(&self, number: u64) {
        let closed = self.sockets().remove(&number);
        if let Some((socket, _place)) = closed {
            socket.close().await;
        }
    }

    /// Returns a failure with the address of the server.
    pub(super) fn failed(&self, what: &str) -> EnvError {
        EnvError(format!("the OpenEnv server at {}: {what}", self.ws))
    }

    fn sockets(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, (Socket, OwnedSemaphorePermit)>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lists the tools of a server. Blocks the thread.
fn listed(ws: &str, key: Option<&str>, timeout: Duration) -> Result<Vec<Tool>, String> {
    let (ws, key) = (ws.to_owned(), key.map(str::to_owned));
    remote::apart(async move {
        let socket = Socket::connect(&ws, key.as_deref(), timeout).await?;
        let message = json!({"type": "step", "data": {"type": "list_tools"}});
        let answer = socket.sender().ask(&message, timeout).await;
        socket.close().await;
        match answer? {
            Frame::Observation { observation, .. } => {
                let tools = observation["tools"].as_array().cloned().unwrap_or_default();
                Ok(tools.iter().map(tool).collect())
            }
            Frame::Error { code, message } => {
                Err(format!("the server lists no tools: {code}: {message}"))
            }
        }
    })
}

fn tool(listed: &Value) -> Tool {
    let text = |key: &str| listed[key].as_str().unwrap_or_default().to_owned();
    Tool {
        name: text("name"),
        description: text("description"),
        parameters: Schema::of_server(listed["input_schema"].clone()),
    }
}

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
use crate::env::remote::TaskTools;
use crate::env::{EnvError, remote};
use crate::task::{Score, Task};
use crate::tools::{Schema, Tool};

/// Pauses before another attempt of a session that the server has no room for: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];

/// Keyword of the schema of actions for the names of those that the environment understands, as servers of maverl write it.
const ACTIONS: &str = "x-maverl-actions";

/// A server, and the sessions on it.
pub(super) struct Server {
    /// Address of WebSockets.
    ws: String,
    key: Option<String>,
    timeout: Duration,
    pub(super) form: ActionForm,
    /// Names of the actions that its environment understands; `None` if the server does not say.
    pub(super) actions: Option<Vec<String>>,
    /// Tools that it lists before an episode.
    tools: Vec<Tool>,
    /// Tools of tasks whose observation of a reset lists some.
    task_tools: TaskTools,
    places: Arc<Semaphore>,
    sessions: Mutex<BTreeMap<u64, OpenSession>>,
    next: AtomicU64,
}

/// An open session.
struct OpenSession {
    socket: Socket,
    /// Answer that ended the episode, with its score.
    judged: Option<(String, Score)>,
    _place: OwnedSemaphorePermit,
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
        let actions = serde_json::from_value(schema["action"][ACTIONS].clone()).ok();
        let tools =
            if form.calls_tools() { list_tools(&ws, key.as_deref(), timeout)? } else { Vec::new() };
        Ok(Self {
            ws,
            key,
            timeout,
            form,
            actions,
            tools,
            task_tools: TaskTools::default(),
            places: Arc::new(Semaphore::new(sessions.get())),
            sessions: Mutex::default(),
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
            let socket = connected.map_err(|what| self.server_failure(&what))?;
            let answer = socket.sender().ask(reset, self.timeout).await;
            match answer.map_err(|what| self.server_failure(&what))? {
                Frame::Observation { observation, done, .. } => {
                    let number = self.next.fetch_add(1, Ordering::Relaxed);
                    self.sessions()
                        .insert(number, OpenSession { socket, judged: None, _place: place });
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
                    return Err(self.server_failure(&format!("no reset: {code}: {message}")));
                }
            }
        }
    }

    /// Sends a message of a session, and returns its answer.
    pub(super) async fn ask(&self, number: u64, message: &Value) -> Result<Frame, EnvError> {
        let sender = self.sessions().get(&number).map(|open| open.socket.sender());
        let sender = sender.ok_or_else(|| self.server_failure("the session is not open"))?;
        sender.ask(message, self.timeout).await.map_err(|what| self.server_failure(&what))
    }

    /// Closes a session.
    pub(super) async fn close(&self, number: u64) {
        let closed = self.sessions().remove(&number);
        if let Some(OpenSession { socket, _place, .. }) = closed {
            socket.close().await;
        }
    }

    /// Returns the answer that ended the episode of a session, with its score.
    pub(super) fn judged_answer(&self, number: u64) -> Option<(String, Score)> {
        self.sessions().get(&number)?.judged.clone()
    }

    /// Stores the answer that ended the episode of a session, with its score.
    pub(super) fn store_score(&self, number: u64, answer: &str, score: &Score) {
        if let Some(open) = self.sessions().get_mut(&number) {
            open.judged = Some((answer.to_owned(), score.clone()));
        }
    }

    /// Stores the tools of a task, if the observation of its reset lists some.
    pub(super) fn store_tools(&self, task: &Task, observation: &Value) {
        if let Some(tools) = listed_tools(observation) {
            self.task_tools.store(task, tools);
        }
    }

    /// Returns the tools of a task: those of its last reset, or else those that the server lists.
    pub(super) fn tools(&self, task: &Task) -> Vec<Tool> {
        self.task_tools.find(task).unwrap_or_else(|| self.tools.clone())
    }

    /// Returns a failure with the address of the server.
    pub(super) fn server_failure(&self, what: &str) -> EnvError {
        EnvError(format!("the OpenEnv server at {}: {what}", self.ws))
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, OpenSession>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lists the tools of a server. Blocks the thread.
fn list_tools(ws: &str, key: Option<&str>, timeout: Duration) -> Result<Vec<Tool>, String> {
    let (ws, key) = (ws.to_owned(), key.map(str::to_owned));
    remote::run_apart(async move {
        let socket = Socket::connect(&ws, key.as_deref(), timeout).await?;
        let message = json!({"type": "step", "data": {"type": "list_tools"}});
        let answer = socket.sender().ask(&message, timeout).await;
        socket.close().await;
        match answer? {
            Frame::Observation { observation, .. } => {
                Ok(listed_tools(&observation).unwrap_or_default())
            }
            Frame::Error { code, message } => {
                Err(format!("the server lists no tools: {code}: {message}"))
            }
        }
    })
}

/// Reads the tools that an observation lists; `None` if its field `tools` is missing or something else.
pub(super) fn listed_tools(observation: &Value) -> Option<Vec<Tool>> {
    let listed = observation["tools"].as_array()?;
    listed.iter().map(tool).collect()
}

fn tool(listed: &Value) -> Option<Tool> {
    let parameters = listed.get("input_schema").filter(|schema| schema.is_object())?;
    Some(Tool {
        name: listed["name"].as_str()?.to_owned(),
        description: listed["description"].as_str().unwrap_or_default().to_owned(),
        parameters: Schema::of_server(parameters.clone()),
    })
}

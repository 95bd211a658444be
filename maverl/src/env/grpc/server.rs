//! A server over gRPC: requests that are sent again when their connection is lost, and the sessions that are open.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use maverl_hub::retry;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Response, Status};

use super::wire::{
    ActRequest, CloseRequest, DescribeRequest, EnvironmentClient, ForkRequest, JudgeRequest,
    OpenRequest, OpenResponse, RenewRequest, ToolCall, act_request, code_name,
};
use crate::env::remote::TaskTools;
use crate::env::{EnvError, remote};
use crate::task::{Action, Observation, Score, Task};
use crate::tools::{Schema, Tool};

/// Maximum size of an answer in bytes.
const MOST_BYTES: usize = 64 << 20;
/// Lease of a session in seconds: the session of a run that is killed ends after it.
const LEASE_S: u32 = 60;
/// Pauses before another attempt of a session that the server has no room for: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];
/// Shortest time between two renewals of a lease, whatever lease the server gives.
const RENEWAL: Duration = Duration::from_secs(1);

/// A connection to a server, and the sessions on it. Clones share them.
#[derive(Clone)]
pub(super) struct Server(Arc<ServerState>);

struct ServerState {
    endpoint: Endpoint,
    /// Opened by the first request, on its runtime; it connects again by itself.
    channel: OnceLock<Channel>,
    key: Option<MetadataValue<Ascii>>,
    timeout: Duration,
    retries: u32,
    /// Beginning of the ids of requests, which no other client has.
    name: String,
    /// Number of sessions so far.
    sessions: AtomicU64,
    /// Tasks that extend the leases of open sessions.
    renewals: Mutex<BTreeMap<String, JoinHandle<()>>>,
    tools: TaskTools,
}

impl Server {
    /// Creates the client of a server, whose certificate is checked with those of `ca` if there are some.
    pub(super) fn new(
        url: &str,
        key: Option<&str>,
        ca: Option<Vec<u8>>,
        timeout: Duration,
        retries: u32,
    ) -> Result<Self, String> {
        let wrong = format!("`url` is {url:?}; write a whole URL, as \"http://127.0.0.1:8000\"");
        let Ok(endpoint) = Endpoint::from_shared(url.to_owned()) else { return Err(wrong) };
        let endpoint = endpoint.connect_timeout(timeout);
        let endpoint = match endpoint.uri().scheme_str() {
            Some("http") => endpoint,
            Some("https") => {
                let trust = ClientTlsConfig::new();
                let trust = match ca {
                    Some(ca) => trust.ca_certificate(Certificate::from_pem(ca)),
                    None => trust.with_webpki_roots(),
                };
                endpoint.tls_config(trust).map_err(|error| {
                    format!("`ca_file` has no usable certificates: {}", causes(&error))
                })?
            }
            _ => return Err(wrong),
        };
        let key = key.map(|key| MetadataValue::try_from(format!("Bearer {key}"))).transpose();
        let mut key = key.map_err(|_| "the key has characters that no header can have")?;
        if let Some(key) = &mut key {
            key.set_sensitive(true);
        }
        let [a, b] = [0, 1].map(|_| RandomState::new().build_hasher().finish());
        Ok(Self(Arc::new(ServerState {
            endpoint,
            channel: OnceLock::new(),
            key,
            timeout,
            retries,
            name: format!("{a:016x}{b:016x}"),
            sessions: AtomicU64::new(0),
            renewals: Mutex::default(),
            tools: TaskTools::default(),
        })))
    }

    /// Returns the names of the actions that the server understands; `None` if it does not list them; an older server does
    /// not. Fails if the server does not answer. Blocks the thread.
    pub(super) fn describe(&self) -> Result<Option<Vec<String>>, EnvError> {
        let server = self.clone();
        let described = remote::run_apart(async move {
            // A connection lives on the runtime that opened it; that of the run opens another one.
            let mut client = EnvironmentClient::new(server.0.endpoint.connect_lazy());
            let request = server.request(DescribeRequest {});
            let answer = server.in_time(client.describe(request)).await;
            answer.map_err(|status| reason(&status))
        });
        let described = described
            .map_err(|what| EnvError(format!("`url`: {}: {what}", self.address())))?
            .into_inner();
        let listed = !described.actions.is_empty() || !described.acts;
        Ok(listed.then_some(described.actions))
    }

    /// Opens a session, and extends its lease until it is closed. Returns its id and the question. Waits for a server that
    /// has no room.
    pub(super) async fn open(&self, task: &Task, seed: u64) -> Result<(String, String), EnvError> {
        let (task_id, request_id) = (task.id.clone(), self.request_id());
        let request = OpenRequest { task_id, seed, request_id, lease_s: LEASE_S };
        let opened = self.with_room(|| {
            self.call(&request, |mut client, request| async move { client.open(request).await })
        });
        let opened = opened.await.map_err(|status| self.failed(&status))?;
        let session = self.keep(&opened);
        match self.fits(task, &opened) {
            Ok(()) => Ok((session, opened.question)),
            Err(error) => self.close(session).await.and(Err(error)),
        }
    }

    /// Opens a session with a copy of the state of another one, and returns its id; `None` if the environment cannot copy it.
    pub(super) async fn fork(&self, session: &str) -> Result<Option<String>, EnvError> {
        let (session, request_id) = (session.to_owned(), self.request_id());
        let request = ForkRequest { session, request_id, lease_s: LEASE_S };
        let copied = self.with_room(|| {
            self.call(&request, |mut client, request| async move { client.fork(request).await })
        });
        match copied.await {
            Ok(copied) => Ok(Some(self.keep(&copied))),
            Err(status) if status.code() == Code::Unimplemented => Ok(None),
            Err(status) => Err(self.failed(&status)),
        }
    }

    /// Returns the id of a request for a session, which no other request has.
    fn request_id(&self) -> String {
        let number = self.0.sessions.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}", self.0.name)
    }

    /// Asks for a session until the server has room for it.
    async fn with_room<F: Future<Output = Result<OpenResponse, Status>>>(
        &self,
        ask: impl Fn() -> F,
    ) -> Result<OpenResponse, Status> {
        let (until, mut pause) = (Instant::now() + self.0.timeout, PAUSES[0]);
        loop {
            match ask().await {
                Err(status)
                    if status.code() == Code::ResourceExhausted
                        && Instant::now() + pause < until =>
                {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSES[1]);
                }
                opened => return opened,
            }
        }
    }

    /// Extends the lease of a session until it is closed. Returns its id.
    fn keep(&self, opened: &OpenResponse) -> String {
        let session = opened.session.clone();
        let renewal = tokio::spawn(self.clone().renew(session.clone(), opened.lease_s));
        // A server that gives an id twice has one session of it.
        let before = lock(&self.0.renewals).insert(session.clone(), renewal);
        before.inspect(JoinHandle::abort);
        session
    }

    /// Stores the tools of a session. Fails if its task has another question than that of the run.
    fn fits(&self, task: &Task, opened: &OpenResponse) -> Result<(), EnvError> {
        let theirs = opened.task.as_ref().map(|task| task.question.as_str());
        if theirs != Some(task.question.as_str()) {
            let (id, address) = (&task.id, self.address());
            return Err(EnvError(format!(
                "the task `{id}` of the gRPC server at {address} has another question than that of the run; give both \
                 the same data"
            )));
        }
        let tools: Vec<Tool> =
            opened.tools.iter().map(|told| self.tool(told)).collect::<Result<_, _>>()?;
        self.0.tools.store(task, tools);
        Ok(())
    }

    /// Reads a tool of a session. Fails if its parameters are no JSON.
    fn tool(&self, told: &super::wire::Tool) -> Result<Tool, EnvError> {
        let name = told.name.clone();
        let parameters = serde_json::from_str(&told.parameters).map_err(|error| {
            let address = self.address();
            EnvError(format!("the parameters of tool `{name}` of the gRPC server at {address} are no JSON: {error}"))
        })?;
        let description = told.description.clone();
        Ok(Tool { name, description, parameters: Schema::of_server(parameters) })
    }

    /// Returns the tools of a task, which are known once a session on it was opened.
    pub(super) fn tools(&self, task: &Task) -> Vec<Tool> {
        self.0.tools.find(task).unwrap_or_default()
    }

    pub(super) async fn act(
        &self,
        session: &str,
        step: u32,
        action: Action,
    ) -> Result<Observation, EnvError> {
        let action = match action {
            Action::Text(text) => act_request::Action::Text(text),
            Action::Tool { name, arguments } => {
                act_request::Action::Call(ToolCall { name, arguments: arguments.to_string() })
            }
        };
        let request = ActRequest { session: session.to_owned(), step, action: Some(action) };
        let seen =
            self.call(&request, |mut client, request| async move { client.act(request).await });
        let seen = seen.await.map_err(|status| self.failed(&status))?;
        Ok(Observation { text: seen.text, done: seen.done })
    }

    pub(super) async fn judge(
        &self,
        session: String,
        answer: Option<&str>,
    ) -> Result<Score, EnvError> {
        let request = JudgeRequest { session, answer: answer.map(str::to_owned) };
        let score =
            self.call(&request, |mut client, request| async move { client.judge(request).await });
        let score = score.await.map_err(|status| self.failed(&status))?;
        let reward = Score::check_bounds("the score", score.reward)
            .map_err(|what| EnvError(format!("the gRPC server at {}: {what}", self.address())))?;
        let metrics = serde_json::from_str(&score.metrics).map_err(|error| {
            let address = self.address();
            EnvError(format!("the metrics of the gRPC server at {address} are no object: {error}"))
        })?;
        Ok(Score { reward, solved: score.solved, metrics })
    }

    pub(super) async fn close(&self, session: String) -> Result<(), EnvError> {
        if let Some(renewal) = lock(&self.0.renewals).remove(&session) {
            renewal.abort();
        }
        let request = CloseRequest { session };
        let closed =
            self.call(&request, |mut client, request| async move { client.close(request).await });
        closed.await.map(drop).map_err(|status| self.failed(&status))
    }

    /// Extends the lease of a session, three times in its length, until the server has no such session.
    async fn renew(self, session: String, lease_s: u32) {
        let request = RenewRequest { session };
        loop {
            tokio::time::sleep(pause(lease_s)).await;
            let done = self
                .call(&request, |mut client, request| async move { client.renew(request).await });
            if done.await.is_err_and(|status| status.code() == Code::NotFound) {
                return;
            }
        }
    }

    /// Awaits an answer within the time of one.
    async fn in_time<A>(
        &self,
        answer: impl Future<Output = Result<A, Status>>,
    ) -> Result<A, Status> {
        let answer = tokio::time::timeout(self.0.timeout, answer).await;
        answer.unwrap_or_else(|_| Err(Status::deadline_exceeded(remote::late(self.0.timeout))))
    }

    /// Sends a message until it is answered, within the number of attempts. The server executes it once.
    async fn call<Q: Clone, A, F: Future<Output = Result<Response<A>, Status>>>(
        &self,
        message: &Q,
        send: impl Fn(EnvironmentClient<Channel>, Request<Q>) -> F,
    ) -> Result<A, Status> {
        let mut pauses = retry::pauses(self.0.retries);
        loop {
            let channel = self.0.channel.get_or_init(|| self.0.endpoint.connect_lazy()).clone();
            let client = EnvironmentClient::new(channel).max_decoding_message_size(MOST_BYTES);
            let status = match self.in_time(send(client, self.request(message.clone()))).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => status,
            };
            let lost = matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled);
            let Some(pause) = pauses.next().filter(|_| lost) else { return Err(status) };
            tokio::time::sleep(pause).await;
        }
    }

    fn request<Q>(&self, message: Q) -> Request<Q> {
        let mut request = Request::new(message);
        if let Some(key) = &self.0.key {
            request.metadata_mut().insert("authorization", key.clone());
        }
        request
    }

    /// Returns the address for messages: without user, password and query, which may be secrets.
    fn address(&self) -> String {
        let uri = self.0.endpoint.uri();
        let host = uri.host().unwrap_or_default();
        let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}://{host}{port}", uri.scheme_str().unwrap_or_default())
    }

    /// Returns a failure with the address of the server.
    fn failed(&self, status: &Status) -> EnvError {
        EnvError(format!("the gRPC server at {}: {}", self.address(), reason(status)))
    }
}

/// Returns the time between two renewals of a lease.
fn pause(lease_s: u32) -> Duration {
    (Duration::from_secs(lease_s.into()) / 3).max(RENEWAL)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the code and the message of a status with the causes of a lost connection.
fn reason(status: &Status) -> String {
    let code = code_name(status.code());
    match std::error::Error::source(status) {
        Some(cause) => format!("{code}: {}", causes(cause)),
        None => format!("{code}: {}", status.message()),
    }
}

/// Returns an error with its causes. A cause that the text before it ends with is not repeated.
fn causes(error: &dyn std::error::Error) -> String {
    let (mut text, mut next) = (error.to_string(), error.source());
    while let Some(cause) = next {
        let told = cause.to_string();
        if !text.ends_with(&told) {
            text = format!("{text}: {told}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_renewed_three_times_and_not_more_than_once_a_second() {
        let pauses = [0, 1, 3, 60, u32::MAX].map(|lease| pause(lease).as_secs());
        assert_eq!(pauses, [1, 1, 1, 20, u64::from(u32::MAX) / 3]);
    }
}

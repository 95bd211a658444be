//! Sessions of a server's environment: what the messages of the service do.

use std::sync::Arc;
use std::time::Duration;

use tonic::Status;

use super::session::{BeginSession, Begun, GrpcSession, open_episode, task};
use super::sessions::{GrpcSessions, id_of};
use crate::environments::server::{EnvironmentServer, ServedEnvironment};
use crate::key::new_key;
use maverl::env::grpc::wire::{
    ActRequest, ActResponse, JudgeRequest, JudgeResponse, OpenResponse, code_name,
};

/// The service of a server. Clones share it.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) server: Arc<EnvironmentServer>,
    pub(super) sessions: GrpcSessions,
    /// Part of what ids of sessions are computed from.
    secret: Arc<str>,
}

impl Service {
    pub(super) fn new(server: Arc<EnvironmentServer>) -> std::io::Result<Self> {
        Ok(Self { server, sessions: GrpcSessions::default(), secret: new_key()?.into() })
    }

    /// Counts a message by its answer.
    pub(super) fn count<T>(&self, answer: &Result<T, Status>) {
        let code = answer.as_ref().err().map(|status| code_name(status.code()));
        self.server.count(&code.unwrap_or_default());
    }

    /// Returns the longest lease in seconds.
    pub(super) fn longest(&self) -> u32 {
        u32::try_from(self.server.settings.timeout.as_secs()).unwrap_or(u32::MAX).max(1)
    }

    /// Begins a session of a client.
    pub(super) async fn begin_session(
        &self,
        client: usize,
        begin: BeginSession,
    ) -> Result<OpenResponse, Status> {
        let served = self.server.served_environment()?;
        if let BeginSession::Open(request) = &begin {
            task(&served, &request.task_id)?;
        }
        let name = match begin.request_id() {
            "" => format!("#{}", self.server.next_episode()),
            given => format!("={given}"),
        };
        let id = id_of(&self.secret, client, &name);
        let longest = self.longest();
        let lease_s = if begin.lease_s() == 0 { longest } else { begin.lease_s().min(longest) };
        let slot = self.sessions.enter(&id, Duration::from_secs(lease_s.into()), || {
            let place = self.server.place().ok_or_else(|| self.full())?;
            Ok(GrpcSession::new(begin.clone(), place))
        })?;
        let sessions = self.sessions.clone();
        goes_on(async move {
            let mut session = slot.session.lock().await;
            let beginning = beginning(&begin, &served, &sessions);
            let opened = session.open(&begin, beginning, (&id, lease_s)).await;
            if !session.is_open() {
                sessions.leave(&id, &slot);
                session.close().await?;
            }
            slot.renew();
            opened
        })
        .await
    }

    /// Executes a step of a session.
    pub(super) async fn act_in_session(&self, request: ActRequest) -> Result<ActResponse, Status> {
        let slot = self.sessions.find(&request.session)?;
        goes_on(async move {
            let seen = slot.session.lock().await.act(request).await;
            slot.renew();
            seen
        })
        .await
    }

    /// Scores the answer of a session.
    pub(super) async fn judge_session(
        &self,
        request: JudgeRequest,
    ) -> Result<JudgeResponse, Status> {
        let slot = self.sessions.find(&request.session)?;
        goes_on(async move {
            let score = slot.session.lock().await.judge(request).await;
            slot.renew();
            score
        })
        .await
    }

    /// Closes a session. Returns false if there is none.
    pub(super) async fn close_session(&self, id: &str) -> Result<bool, Status> {
        let Some(slot) = self.sessions.remove(id) else { return Ok(false) };
        goes_on(async move {
            slot.session.lock().await.close().await?;
            Ok(true)
        })
        .await
    }

    fn full(&self) -> Status {
        let (open, most) = (self.server.sessions(), self.server.settings.sessions);
        Status::resource_exhausted(format!("{open} of {most} sessions are open; try again later"))
    }
}

/// Returns the episode of a new session: one on a task, or the copy of another one.
async fn beginning(
    begin: &BeginSession,
    served: &ServedEnvironment,
    sessions: &GrpcSessions,
) -> Result<Begun, Status> {
    match begin {
        BeginSession::Open(request) => open_episode(request, served).await,
        BeginSession::Fork(request) => {
            let origin = sessions.find(&request.session)?;
            origin.session.lock().await.copy_episode(&request.session, &served.name).await
        }
    }
}

/// Runs the work of a message to its end, also if the client's connection is lost.
async fn goes_on<T: Send + 'static>(
    work: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|_| Err(Status::internal("a bug of this server, which its log has")))
}

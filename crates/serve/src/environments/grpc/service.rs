//! The service `maverl.environment.v1.Environment`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use futures::stream::{iter, unfold};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status, Streaming};

use super::many;
use super::play::Play;
use super::session::{Begin, Session, described, task};
use super::sessions::{Sessions, id_of};
use crate::environments::server::EnvironmentServer;
use crate::guard::Client;
use crate::key::new_key;
use maverl::env::grpc::wire::{
    ActManyRequest, ActManyResponse, ActRequest, ActResponse, CloseRequest, CloseResponse,
    DescribeRequest, DescribeResponse, Environment, ForkRequest, JudgeRequest, JudgeResponse,
    OpenRequest, OpenResponse, PlayRequest, PlayResponse, RenewRequest, RenewResponse, Split, Task,
    TasksRequest, code_name,
};

/// Messages of an answer that is a stream.
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The service of a server. Clones share it.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) server: Arc<EnvironmentServer>,
    pub(super) sessions: Sessions,
    /// Part of what ids of sessions are computed from.
    secret: Arc<str>,
}

impl Service {
    pub(super) fn new(server: Arc<EnvironmentServer>) -> std::io::Result<Self> {
        Ok(Self { server, sessions: Sessions::default(), secret: new_key()?.into() })
    }

    /// Counts a message, and returns its answer.
    fn counted<T>(&self, answer: Result<T, Status>) -> Result<Response<T>, Status> {
        self.count(&answer);
        answer.map(Response::new)
    }

    /// Counts a message by its answer.
    pub(super) fn count<T>(&self, answer: &Result<T, Status>) {
        let code = answer.as_ref().err().map(|status| code_name(status.code()));
        self.server.count(&code.unwrap_or_default());
    }

    /// Returns the longest lease in seconds.
    fn longest(&self) -> u32 {
        u32::try_from(self.server.settings.timeout.as_secs()).unwrap_or(u32::MAX).max(1)
    }

    /// Begins a session of a client.
    pub(super) async fn begun(&self, client: usize, begin: Begin) -> Result<OpenResponse, Status> {
        let served = self.server.served()?;
        if let Begin::Open(request) = &begin {
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
            Ok(Session::new(begin.clone(), place))
        })?;
        let sessions = self.sessions.clone();
        goes_on(async move {
            let mut session = slot.session.lock().await;
            let opened = session.open(&begin, (&served, &sessions), (&id, lease_s)).await;
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
    pub(super) async fn acted(&self, request: ActRequest) -> Result<ActResponse, Status> {
        let slot = self.sessions.find(&request.session)?;
        goes_on(async move {
            let seen = slot.session.lock().await.act(request).await;
            slot.renew();
            seen
        })
        .await
    }

    /// Scores the answer of a session.
    pub(super) async fn judged(&self, request: JudgeRequest) -> Result<JudgeResponse, Status> {
        let slot = self.sessions.find(&request.session)?;
        goes_on(async move {
            let score = slot.session.lock().await.judge(request).await;
            slot.renew();
            score
        })
        .await
    }

    /// Closes a session. Returns false if there is none.
    pub(super) async fn closed(&self, id: &str) -> Result<bool, Status> {
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

/// Returns the messages that a channel receives as a stream.
fn answers<T: Send + 'static>(receiver: mpsc::Receiver<Result<T, Status>>) -> Answers<T> {
    Box::pin(unfold(receiver, |mut receiver| async move {
        let next = receiver.recv().await?;
        Some((next, receiver))
    }))
}

/// Returns the client of a request, by its key.
fn client<T>(request: &Request<T>) -> usize {
    request.extensions().get().copied().map_or(0, |Client(client)| client)
}

/// Runs the work of a message to its end, also if the client's connection is lost.
async fn goes_on<T: Send + 'static>(
    work: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|_| Err(Status::internal("a bug of this server, which its log has")))
}

#[tonic::async_trait]
impl Environment for Service {
    type TasksStream = Answers<Task>;
    type ActManyStream = Answers<ActManyResponse>;
    type PlayStream = Answers<PlayResponse>;

    async fn describe(
        &self,
        _: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        let served = self.server.served().map_err(Status::from);
        self.counted(served.map(|served| {
            let split = |(name, tasks): &(String, Vec<_>)| Split {
                name: name.clone(),
                tasks: tasks.len() as u64,
            };
            DescribeResponse {
                name: served.name.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                acts: served.acts,
                actions: served.actions.clone(),
                splits: served.tasks.0.iter().map(split).collect(),
                lease_s: self.longest(),
            }
        }))
    }

    async fn tasks(
        &self,
        request: Request<TasksRequest>,
    ) -> Result<Response<Self::TasksStream>, Status> {
        let listed = self.server.served().map_err(Status::from).and_then(|served| {
            let split = served.tasks.split(&request.get_ref().split);
            let split = split.map_err(Status::invalid_argument)?;
            let tasks: Vec<_> = split.iter().map(|task| Ok(described(task))).collect();
            Ok(Box::pin(iter(tasks)) as Self::TasksStream)
        });
        self.counted(listed)
    }

    async fn open(&self, request: Request<OpenRequest>) -> Result<Response<OpenResponse>, Status> {
        let client = client(&request);
        self.counted(self.begun(client, Begin::Open(request.into_inner())).await)
    }

    async fn fork(&self, request: Request<ForkRequest>) -> Result<Response<OpenResponse>, Status> {
        let client = client(&request);
        self.counted(self.begun(client, Begin::Fork(request.into_inner())).await)
    }

    async fn renew(
        &self,
        request: Request<RenewRequest>,
    ) -> Result<Response<RenewResponse>, Status> {
        let found = self.sessions.find(&request.get_ref().session);
        self.counted(found.map(|_| RenewResponse {}))
    }

    async fn act(&self, request: Request<ActRequest>) -> Result<Response<ActResponse>, Status> {
        self.counted(self.acted(request.into_inner()).await)
    }

    async fn act_many(
        &self,
        request: Request<ActManyRequest>,
    ) -> Result<Response<Self::ActManyStream>, Status> {
        match many::begin(self, request.into_inner().acts) {
            Ok(receiver) => Ok(Response::new(answers(receiver))),
            refused => self.counted(refused.map(answers)),
        }
    }

    async fn judge(
        &self,
        request: Request<JudgeRequest>,
    ) -> Result<Response<JudgeResponse>, Status> {
        self.counted(self.judged(request.into_inner()).await)
    }

    async fn close(
        &self,
        request: Request<CloseRequest>,
    ) -> Result<Response<CloseResponse>, Status> {
        let closed = self.closed(&request.get_ref().session).await;
        self.counted(closed.map(|closed| CloseResponse { closed }))
    }

    async fn play(
        &self,
        request: Request<Streaming<PlayRequest>>,
    ) -> Result<Response<Self::PlayStream>, Status> {
        let play = Play::new(self.clone(), client(&request));
        // One answer for each message, so a client that does not read is waited for.
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(play.run(request.into_inner(), sender));
        Ok(Response::new(answers(receiver)))
    }
}

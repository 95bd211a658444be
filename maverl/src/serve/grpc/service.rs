//! The service `maverl.environment.v1.Environment`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use futures::stream::iter;
use tonic::{Request, Response, Status};

use super::session::{Session, described, task};
use super::sessions::{Sessions, id_of};
use crate::env::grpc::wire::{
    ActRequest, ActResponse, CloseRequest, CloseResponse, DescribeRequest, DescribeResponse,
    Environment, JudgeRequest, JudgeResponse, OpenRequest, OpenResponse, RenewRequest,
    RenewResponse, Split, Task, TasksRequest, code_name,
};
use crate::serve::Client;
use crate::serve::environment::EnvironmentServer;
use crate::serve::key::new_key;

/// The service of a server.
pub(super) struct Service {
    server: Arc<EnvironmentServer>,
    sessions: Sessions,
    /// Part of what ids of sessions are computed from.
    secret: String,
}

impl Service {
    pub(super) fn new(server: Arc<EnvironmentServer>) -> std::io::Result<Self> {
        Ok(Self { server, sessions: Sessions::default(), secret: new_key()? })
    }

    /// Counts a message, and returns its answer.
    fn counted<T>(&self, answer: Result<T, Status>) -> Result<Response<T>, Status> {
        let code = answer.as_ref().err().map(|status| code_name(status.code()));
        self.server.count(&code.unwrap_or_default());
        answer.map(Response::new)
    }

    /// Returns the longest lease in seconds.
    fn longest(&self) -> u32 {
        u32::try_from(self.server.settings.timeout.as_secs()).unwrap_or(u32::MAX).max(1)
    }

    async fn opened(&self, client: usize, request: OpenRequest) -> Result<OpenResponse, Status> {
        let served = self.server.served()?;
        task(&served, &request.task_id)?;
        let name = match request.request_id.as_str() {
            "" => format!("#{}", self.server.next_episode()),
            given => format!("={given}"),
        };
        let id = id_of(&self.secret, client, &name);
        let longest = self.longest();
        let lease_s = if request.lease_s == 0 { longest } else { request.lease_s.min(longest) };
        let slot = self.sessions.enter(&id, Duration::from_secs(lease_s.into()), || {
            let place = self.server.place().ok_or_else(|| self.full())?;
            Ok(Session::new(request.clone(), place))
        })?;
        let sessions = self.sessions.clone();
        goes_on(async move {
            let mut session = slot.session.lock().await;
            let opened = session.open(&request, &served, (&id, lease_s)).await;
            if !session.is_open() {
                sessions.leave(&id, &slot);
                session.close().await?;
            }
            slot.renew();
            opened
        })
        .await
    }

    fn full(&self) -> Status {
        let (open, most) = (self.server.sessions(), self.server.settings.sessions);
        Status::resource_exhausted(format!("{open} of {most} sessions are open; try again later"))
    }
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
    type TasksStream = Pin<Box<dyn Stream<Item = Result<Task, Status>> + Send>>;

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
        let Client(client) = request.extensions().get().copied().unwrap_or(Client(0));
        self.counted(self.opened(client, request.into_inner()).await)
    }

    async fn renew(
        &self,
        request: Request<RenewRequest>,
    ) -> Result<Response<RenewResponse>, Status> {
        let found = self.sessions.find(&request.get_ref().session);
        self.counted(found.map(|_| RenewResponse {}))
    }

    async fn act(&self, request: Request<ActRequest>) -> Result<Response<ActResponse>, Status> {
        let request = request.into_inner();
        let answer = async {
            let slot = self.sessions.find(&request.session)?;
            goes_on(async move {
                let seen = slot.session.lock().await.act(request).await;
                slot.renew();
                seen
            })
            .await
        };
        self.counted(answer.await)
    }

    async fn judge(
        &self,
        request: Request<JudgeRequest>,
    ) -> Result<Response<JudgeResponse>, Status> {
        let request = request.into_inner();
        let answer = async {
            let slot = self.sessions.find(&request.session)?;
            goes_on(async move {
                let score = slot.session.lock().await.judge(request).await;
                slot.renew();
                score
            })
            .await
        };
        self.counted(answer.await)
    }

    async fn close(
        &self,
        request: Request<CloseRequest>,
    ) -> Result<Response<CloseResponse>, Status> {
        let answer = match self.sessions.remove(&request.get_ref().session) {
            None => Ok(CloseResponse { closed: false }),
            Some(slot) => {
                goes_on(async move {
                    slot.session.lock().await.close().await?;
                    Ok(CloseResponse { closed: true })
                })
                .await
            }
        };
        self.counted(answer)
    }
}

//! The service `maverl.environment.v1.Environment`: its messages, counted and answered.

use std::pin::Pin;

use futures::Stream;
use futures::stream::{iter, unfold};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status, Streaming};

use super::many;
use super::play::Play;
use super::service::Service;
use super::session::{BeginSession, public_task};
use crate::guard::ClientNumber;
use maverl::env::grpc::wire::{
    ActManyRequest, ActManyResponse, ActRequest, ActResponse, CloseRequest, CloseResponse,
    DescribeRequest, DescribeResponse, Environment, ForkRequest, JudgeRequest, JudgeResponse,
    OpenRequest, OpenResponse, PlayRequest, PlayResponse, RenewRequest, RenewResponse, Split, Task,
    TasksRequest,
};

/// Messages of an answer that is a stream.
type AnswerStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    /// Counts a message, and returns its answer.
    fn count_message<T>(&self, answer: Result<T, Status>) -> Result<Response<T>, Status> {
        self.count(&answer);
        answer.map(Response::new)
    }
}

/// Returns the messages that a channel receives as a stream.
fn answers<T: Send + 'static>(receiver: mpsc::Receiver<Result<T, Status>>) -> AnswerStream<T> {
    Box::pin(unfold(receiver, |mut receiver| async move {
        let next = receiver.recv().await?;
        Some((next, receiver))
    }))
}

/// Returns the client of a request, by its key.
fn client<T>(request: &Request<T>) -> usize {
    request.extensions().get().copied().map_or(0, |ClientNumber(client)| client)
}

/// Describes a split of tasks.
fn split((name, tasks): &(String, Vec<maverl::task::Task>)) -> Split {
    Split { name: name.clone(), tasks: tasks.len() as u64 }
}

#[tonic::async_trait]
impl Environment for Service {
    type TasksStream = AnswerStream<Task>;
    type ActManyStream = AnswerStream<ActManyResponse>;
    type PlayStream = AnswerStream<PlayResponse>;

    async fn describe(
        &self,
        _: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        let served = self.server.served_environment().map_err(Status::from);
        self.count_message(served.map(|served| DescribeResponse {
            name: served.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            acts: served.acts,
            actions: served.actions.clone(),
            splits: served.tasks.0.iter().map(split).collect(),
            lease_s: self.longest(),
        }))
    }

    async fn tasks(
        &self,
        request: Request<TasksRequest>,
    ) -> Result<Response<Self::TasksStream>, Status> {
        let listed = self.server.served_environment().map_err(Status::from).and_then(|served| {
            let split = served.tasks.split(&request.get_ref().split);
            let split = split.map_err(Status::invalid_argument)?;
            let tasks: Vec<_> = split.iter().map(|task| Ok(public_task(task))).collect();
            Ok(Box::pin(iter(tasks)) as Self::TasksStream)
        });
        self.count_message(listed)
    }

    async fn open(&self, request: Request<OpenRequest>) -> Result<Response<OpenResponse>, Status> {
        let client = client(&request);
        self.count_message(
            self.begin_session(client, BeginSession::Open(request.into_inner())).await,
        )
    }

    async fn fork(&self, request: Request<ForkRequest>) -> Result<Response<OpenResponse>, Status> {
        let client = client(&request);
        self.count_message(
            self.begin_session(client, BeginSession::Fork(request.into_inner())).await,
        )
    }

    async fn renew(
        &self,
        request: Request<RenewRequest>,
    ) -> Result<Response<RenewResponse>, Status> {
        let found = self.sessions.find(&request.get_ref().session);
        self.count_message(found.map(|_| RenewResponse {}))
    }

    async fn act(&self, request: Request<ActRequest>) -> Result<Response<ActResponse>, Status> {
        self.count_message(self.act_in_session(request.into_inner()).await)
    }

    async fn act_many(
        &self,
        request: Request<ActManyRequest>,
    ) -> Result<Response<Self::ActManyStream>, Status> {
        match many::begin(self, request.into_inner().acts) {
            Ok(receiver) => Ok(Response::new(answers(receiver))),
            refused => self.count_message(refused.map(answers)),
        }
    }

    async fn judge(
        &self,
        request: Request<JudgeRequest>,
    ) -> Result<Response<JudgeResponse>, Status> {
        self.count_message(self.judge_session(request.into_inner()).await)
    }

    async fn close(
        &self,
        request: Request<CloseRequest>,
    ) -> Result<Response<CloseResponse>, Status> {
        let closed = self.close_session(&request.get_ref().session).await;
        self.count_message(closed.map(|closed| CloseResponse { closed }))
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

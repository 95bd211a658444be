//! A session: an episode whose steps are executed once, however often they are sent.
//!
//! Each step has a number. A repeated last step gets its stored answer, the next one is executed, and others are
//! refused. A step runs in an async task of its own, which holds the lock of the session, so that it continues if the
//! connection is lost.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

use crate::environments::episode::{EnvironmentEpisode, EnvironmentFailed, FAILED};
use crate::environments::server::ServedEnvironment;
use maverl::env::grpc::wire::{
    ActRequest, ActResponse, ForkRequest, JudgeRequest, JudgeResponse, OpenRequest, OpenResponse,
    Task, Tool, ToolCall, act_request,
};
use maverl::task::Action;

/// A request with its answer, for the case that it is sent again.
type SessionDone<Q, A> = Option<(Q, Result<A, EnvironmentFailed>)>;

/// A request that begins a session.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum BeginSession {
    Open(OpenRequest),
    Fork(ForkRequest),
}

impl BeginSession {
    /// Returns the id of the request, empty for none.
    pub(super) fn request_id(&self) -> &str {
        match self {
            Self::Open(request) => &request.request_id,
            Self::Fork(request) => &request.request_id,
        }
    }

    /// Returns the requested lease in seconds; 0 for the longest.
    pub(super) fn lease_s(&self) -> u32 {
        match self {
            Self::Open(request) => request.lease_s,
            Self::Fork(request) => request.lease_s,
        }
    }
}

/// Beginning of a session: the episode with its question, and the number of steps before it.
pub(super) type Begun = (EnvironmentEpisode, String, u32);

/// A session of a client.
pub(super) struct GrpcSession {
    begin: BeginSession,
    /// Answer of the request that opened it; `None` before.
    answer: Option<OpenResponse>,
    /// `None` before it is opened and after it is closed.
    episode: Option<EnvironmentEpisode>,
    /// Number of steps before its own: those of the session that it is a copy of.
    before: u32,
    /// Last step.
    act: SessionDone<ActRequest, ActResponse>,
    /// Last score since that step. A score leaves the episode as it is.
    score: SessionDone<JudgeRequest, JudgeResponse>,
    /// Its place among the sessions of the server, until it is closed.
    place: Option<OwnedSemaphorePermit>,
}

impl GrpcSession {
    /// Creates a session that [`Session::open`] opens.
    pub(super) fn new(begin: BeginSession, place: OwnedSemaphorePermit) -> Self {
        let place = Some(place);
        Self { begin, answer: None, episode: None, before: 0, act: None, score: None, place }
    }

    /// Opens the episode that `beginning` returns, unless it was opened by an equal request.
    pub(super) async fn open(
        &mut self,
        begin: &BeginSession,
        beginning: impl Future<Output = Result<Begun, Status>>,
        (id, lease_s): (&str, u32),
    ) -> Result<OpenResponse, Status> {
        if *begin != self.begin {
            let message =
                "`request_id` is that of another request; write a text that no other session has";
            return Err(Status::already_exists(message));
        }
        if self.place.is_none() {
            return Err(unknown_session(id));
        }
        if let Some(answer) = &self.answer {
            return Ok(answer.clone());
        }
        let (episode, question, before) = beginning.await?;
        let tools = episode.tools().into_iter().map(|tool| Tool {
            name: tool.name,
            description: tool.description,
            parameters: tool.parameters.json().to_string(),
        });
        let (task, tools) = (Some(public_task(episode.task())), tools.collect());
        let session = id.to_owned();
        let answer = OpenResponse { session, task, question, tools, lease_s };
        (self.episode, self.before, self.answer) = (Some(episode), before, Some(answer.clone()));
        Ok(answer)
    }

    /// Returns a copy of the episode.
    pub(super) async fn copy_episode(&self, id: &str, environment: &str) -> Result<Begun, Status> {
        let (Some(episode), Some(answer)) = (&self.episode, &self.answer) else {
            return Err(unknown_session(id));
        };
        let copy = episode.fork().await?.ok_or_else(|| {
            Status::unimplemented(format!(
                "the environment `{environment}` cannot copy the state of a session; open another one, and repeat its steps"
            ))
        })?;
        Ok((copy, answer.question.clone(), self.last()))
    }

    /// Returns the number of the last step.
    fn last(&self) -> u32 {
        self.act.as_ref().map_or(self.before, |(last, _)| last.step)
    }

    /// Returns the number of the next step.
    pub(super) fn next(&self) -> u32 {
        self.last().saturating_add(1)
    }

    pub(super) fn is_open(&self) -> bool {
        self.episode.is_some()
    }

    /// Executes a step, or returns the answer of an equal one.
    pub(super) async fn act(&mut self, request: ActRequest) -> Result<ActResponse, Status> {
        let last = self.last();
        let episode = self.episode.as_mut().ok_or_else(|| unknown_session(&request.session))?;
        match &self.act {
            Some((done, answer)) if *done == request => return Ok(answer.clone()?),
            Some((done, _)) if done.step == request.step => {
                let message = format!("step {last} was another action, which is not repeated");
                return Err(Status::failed_precondition(message));
            }
            _ => {}
        }
        if last.checked_add(1) != Some(request.step) {
            let step = request.step;
            let message = format!(
                "`step` is {step}; the last step was {last}, so that only {last} and the next are accepted"
            );
            return Err(Status::failed_precondition(message));
        }
        let seen = episode.act(action(request.action.as_ref())?).await;
        let answer = seen.map(|seen| ActResponse { text: seen.text, done: seen.done });
        (self.act, self.score) = (Some((request, answer.clone())), None);
        Ok(answer?)
    }

    /// Scores an answer in the state after the last step, or returns the score of an equal request.
    pub(super) async fn judge(&mut self, request: JudgeRequest) -> Result<JudgeResponse, Status> {
        let episode = self.episode.as_ref().ok_or_else(|| unknown_session(&request.session))?;
        if let Some((done, answer)) = &self.score
            && *done == request
        {
            return Ok(answer.clone()?);
        }
        let score = episode.score(request.answer.clone()).await;
        let answer = score.map(|score| JudgeResponse {
            reward: score.reward,
            solved: score.solved,
            metrics: Value::Object(score.metrics).to_string(),
        });
        self.score = Some((request, answer.clone()));
        Ok(answer?)
    }

    /// Closes the episode, and leaves its place to another session.
    pub(super) async fn close(&mut self) -> Result<(), Status> {
        let episode = self.episode.take();
        let closed = match episode {
            Some(episode) => episode.close().await,
            None => Ok(()),
        };
        self.place = None;
        Ok(closed?)
    }
}

/// Opens an episode on a task of the server.
pub(super) async fn open_episode(
    request: &OpenRequest,
    served: &ServedEnvironment,
) -> Result<Begun, Status> {
    let task = task(served, &request.task_id)?.clone();
    let environment = Arc::clone(&served.environment);
    let (episode, question) = EnvironmentEpisode::open(environment, task, request.seed).await?;
    Ok((episode, question, 0))
}

/// Returns a task of the server.
pub(super) fn task<'s>(
    served: &'s ServedEnvironment,
    id: &str,
) -> Result<&'s maverl::task::Task, Status> {
    served.tasks.find(id).ok_or_else(|| {
        let shown: String = id.chars().take(80).collect();
        Status::invalid_argument(format!(
            "`task_id` is {shown:?}, and the server has no such task; `Tasks` lists them"
        ))
    })
}

/// Returns the part of a task that clients are told.
pub(super) fn public_task(task: &maverl::task::Task) -> Task {
    let (id, source, question) = (task.id.clone(), task.source.clone(), task.question.clone());
    Task { id, source, question }
}

/// Returns the refusal of a request for a session that is not open.
pub(super) fn unknown_session(id: &str) -> Status {
    let shown: String = id.chars().take(80).collect();
    Status::not_found(format!(
        "there is no session {shown:?}; it was closed, or its lease ended without a request"
    ))
}

fn action(action: Option<&act_request::Action>) -> Result<Action, Status> {
    match action {
        Some(act_request::Action::Text(text)) => Ok(Action::Text(text.clone())),
        Some(act_request::Action::Call(ToolCall { name, arguments })) => {
            match serde_json::from_str(arguments) {
                Ok(arguments @ Value::Object(_)) => {
                    Ok(Action::Tool { name: name.clone(), arguments })
                }
                _ => Err(Status::invalid_argument(
                    "`arguments` of a call is no JSON object; write one as text, such as {}",
                )),
            }
        }
        None => Err(Status::invalid_argument("the step has no action; write `text` or `call`")),
    }
}

impl From<EnvironmentFailed> for Status {
    fn from(_: EnvironmentFailed) -> Self {
        Self::internal(FAILED)
    }
}

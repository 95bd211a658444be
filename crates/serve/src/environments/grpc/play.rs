//! An episode in one stream, whose end closes the session.

use std::time::Duration;

use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::service::Service;
use super::session::{BeginSession, unknown_session};
use maverl::env::grpc::wire::play_request::Message as Asked;
use maverl::env::grpc::wire::play_response::Message as Answer;
use maverl::env::grpc::wire::{PlayRequest, PlayResponse};

/// The stream of a client.
pub(super) struct Play {
    service: Service,
    client: usize,
    /// Id of the session; `None` before it is opened.
    session: Option<String>,
    /// Time without a message after which the stream ends.
    lease: Duration,
}

impl Play {
    pub(super) fn new(service: Service, client: usize) -> Self {
        let lease = service.server.settings.timeout;
        Self { service, client, session: None, lease }
    }

    /// Answers the messages of the stream. At its end, whoever ends it, the session is closed.
    pub(super) async fn run(
        mut self,
        messages: Streaming<PlayRequest>,
        answers: mpsc::Sender<Result<PlayResponse, Status>>,
    ) {
        let played = self.play_messages(messages, &answers).await;
        let closed = match &self.session {
            Some(session) => self.service.close_session(session).await.map(drop),
            None => Ok(()),
        };
        if let Err(status) = played.and(closed) {
            // A client that is gone reads no status.
            let _ = answers.send(Err(status)).await;
        }
    }

    async fn play_messages(
        &mut self,
        mut messages: Streaming<PlayRequest>,
        answers: &mpsc::Sender<Result<PlayResponse, Status>>,
    ) -> Result<(), Status> {
        loop {
            let message = tokio::select! {
                () = answers.closed() => return Ok(()),
                message = tokio::time::timeout(self.lease, messages.message()) => message,
            };
            let message = message
                .map_err(|_| unknown_session(self.session.as_deref().unwrap_or_default()))?;
            let Some(message) = message? else { return Ok(()) };
            let answer = self.answer(message).await;
            self.service.count(&answer);
            let answer = match answer {
                Ok(answer) => answer,
                Err(status) if self.session.is_none() => return Err(status),
                Err(status) => Answer::Failure(status.into()),
            };
            if answers.send(Ok(PlayResponse { message: Some(answer) })).await.is_err() {
                return Ok(());
            }
        }
    }

    async fn answer(&mut self, message: PlayRequest) -> Result<Answer, Status> {
        let own = self.session.clone();
        match (message.message, own.as_deref()) {
            (Some(Asked::Open(request)), None) => {
                if !request.request_id.is_empty() {
                    let message = "`request_id` is given; a stream begins a session of its own, so leave it empty";
                    return Err(Status::invalid_argument(message));
                }
                let opened =
                    self.service.begin_session(self.client, BeginSession::Open(request)).await?;
                self.lease = self.service.sessions.find(&opened.session)?.lease();
                self.session = Some(opened.session.clone());
                Ok(Answer::Open(opened))
            }
            (Some(Asked::Open(_)), Some(_)) => {
                let message = "the stream has a session; open another stream for another episode";
                Err(Status::failed_precondition(message))
            }
            (Some(_), None) => {
                Err(Status::failed_precondition("the first message of a stream is `open`"))
            }
            (Some(Asked::Act(mut request)), Some(own)) => {
                request.session = session_name(&request.session, own)?;
                if request.step == 0 {
                    request.step = self.service.sessions.find(own)?.session.lock().await.next();
                }
                self.service.act_in_session(request).await.map(Answer::Act)
            }
            (Some(Asked::Judge(mut request)), Some(own)) => {
                request.session = session_name(&request.session, own)?;
                self.service.judge_session(request).await.map(Answer::Judge)
            }
            (None, _) => {
                let message = "the message is empty; write `open`, `act` or `judge`";
                Err(Status::invalid_argument(message))
            }
        }
    }
}

/// Returns the session of a stream, which a message names or not.
fn session_name(given: &str, own: &str) -> Result<String, Status> {
    if given.is_empty() || given == own {
        return Ok(own.to_owned());
    }
    let message = "`session` is not that of the stream; leave it empty, or send the message by `Act` or `Judge`";
    Err(Status::invalid_argument(message))
}

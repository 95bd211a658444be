//! `maverl serve team`: a team as a model. A request is one episode without a judge.

mod answer;
mod request;
mod server;

pub use server::{ConversationReading, ServedTeam, TeamServer, TeamSettings};

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::{get, post};

use crate::body;
use crate::guard::ClientNumber;
use crate::openai::models::{Lineage, ModelCard, ModelList};
use crate::openai::{CHAT_PATH, Fields};
use crate::refusal::{Refusal, json_response};
use crate::stream;
use request::TeamQuestion;

impl TeamServer {
    /// Returns the routes.
    pub fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/v1/models", get(models))
            .route("/v1/chat/completions", post(chat))
            .fallback(other_path)
            .with_state(Arc::clone(self))
    }

    async fn chat(self: &Arc<Self>, request: Request) -> Result<Response, Refusal> {
        let team = self.team()?;
        let client = ClientNumber::of(&request);
        let bytes = body::read(request.into_body(), self.settings.max_body).await?;
        stream::count_leaving(&self.metrics, self.answer(team, client, &bytes)).await
    }

    /// Answers a request whose body was read.
    async fn answer(
        self: &Arc<Self>,
        team: &ServedTeam,
        client: ClientNumber,
        bytes: &[u8],
    ) -> Result<Response, Refusal> {
        let admitted = self.queue.admit(client).await?;
        let question = TeamQuestion::read(Fields::parse(bytes)?, team, self.settings)?;
        if question.streaming.stream {
            let server = Arc::clone(self);
            return Ok(stream::events(&self.metrics, move |events| async move {
                answer::stream(&server, question, &admitted, &events).await;
            }));
        }
        answer::whole_response(self, &question, &admitted).await
    }
}

async fn chat(State(server): State<Arc<TeamServer>>, request: Request) -> Response {
    let answer = server.chat(request).await;
    server.count_answer("chat", answer)
}

async fn models(State(server): State<Arc<TeamServer>>) -> Response {
    let answer = server.team().map(|team| {
        let root = team.plan.orchestra.name.clone();
        let lineage = Lineage { root, parent: None, max_model_len: None };
        let card = ModelCard::new(team.name.clone(), server.created, Some(lineage));
        json_response(StatusCode::OK, &ModelList::from_iter([card]))
    });
    server.count_answer("models", answer)
}

async fn other_path(State(server): State<Arc<TeamServer>>, uri: Uri) -> Response {
    server.count_answer("other", Err(Refusal::no_path(&uri, CHAT_PATH)))
}

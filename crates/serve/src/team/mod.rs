//! `maverl serve team`: a team as a model. A request is one episode without a judge.

mod answer;
mod dialect;
mod request;
mod server;

pub use server::{ConversationReading, ServedTeam, TeamServer, TeamSettings};

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use axum::routing::{get, head, post};

use crate::anthropic::{MessageModel, MessageModels, asks_for_models};
use crate::body;
use crate::guard::ClientNumber;
use crate::openai::models::{Lineage, ModelCard, ModelList};
use crate::openai::{CHAT_PATH, Fields};
use crate::refusal::{Refusal, json_response};
use crate::stream;
use dialect::TeamDialect;
use request::TeamQuestion;

impl TeamServer {
    /// Returns the routes.
    pub fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/v1/models", get(models))
            .route("/v1/chat/completions", post(chat))
            .route("/v1/messages", post(messages))
            .route("/v1/messages/count_tokens", post(count_tokens))
            .route("/", head(StatusCode::OK))
            .fallback(other_path)
            .with_state(Arc::clone(self))
    }

    /// Answers a request in a protocol.
    async fn ask(
        self: &Arc<Self>,
        dialect: TeamDialect,
        request: Request,
    ) -> Result<Response, Refusal> {
        let team = self.team()?;
        let client = ClientNumber::of(&request);
        let bytes = body::read(request.into_body(), self.settings.max_body).await?;
        stream::count_leaving(&self.metrics, self.answer(dialect, team, client, &bytes)).await
    }

    /// Answers a request whose body was read.
    async fn answer(
        self: &Arc<Self>,
        dialect: TeamDialect,
        team: &ServedTeam,
        client: ClientNumber,
        bytes: &[u8],
    ) -> Result<Response, Refusal> {
        let admitted = self.queue.admit(client).await?;
        let mut fields = Fields::parse(bytes)?;
        dialect.as_chat(&mut fields)?;
        let question = TeamQuestion::read(fields, team, self.settings)?;
        dialect.answer(self, question, admitted).await
    }
}

async fn chat(State(server): State<Arc<TeamServer>>, request: Request) -> Response {
    let answer = server.ask(TeamDialect::Chat, request).await;
    server.count_answer(TeamDialect::Chat.route(), answer)
}

async fn messages(State(server): State<Arc<TeamServer>>, request: Request) -> Response {
    let answer = server.ask(TeamDialect::Messages, request).await;
    server.count_answer(TeamDialect::Messages.route(), answer)
}

/// Refuses to count: the prompts of a team are known once it has played.
async fn count_tokens(State(server): State<Arc<TeamServer>>) -> Response {
    let message = "a team has no prompt whose tokens could be counted: its agents have prompts of their own, which depend on \
                   what they say. `usage` of an answer has the tokens of all turns";
    let refusal = Refusal::new(StatusCode::NOT_FOUND, "not_found", message);
    server.count_answer("count_tokens", Err(refusal))
}

async fn models(State(server): State<Arc<TeamServer>>, headers: HeaderMap) -> Response {
    let answer = server.team().map(|team| {
        if asks_for_models(&headers) {
            let model = MessageModel::new(team.name.clone(), server.created);
            return json_response(StatusCode::OK, &MessageModels::from_iter([model]));
        }
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

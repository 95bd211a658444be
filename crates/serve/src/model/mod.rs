//! `maverl serve model`: models, their adapters and the policies of runs, in OpenAI's protocol.

mod adapters;
mod answer;
mod asked;
mod catalog;
mod chat;
mod choice;
mod completions;
mod generate;
#[cfg(feature = "grammar")]
mod grammar;
mod list;
mod messages;
mod reading;
mod responses;
mod server;
mod tokenize;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::{get, head, post};

use asked::RouteOutcome;
pub use catalog::{Catalog, Entry};
pub use server::{FAMILIES, ModelServer, ModelSettings};

use crate::openai::CHAT_PATH;
use crate::refusal::Refusal;

impl ModelServer {
    /// Returns the routes.
    pub fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/v1/models", get(list::models))
            .route("/v1/models/{*name}", get(list::model))
            .route("/v1/chat/completions", post(chat::route))
            .route("/v1/completions", post(completions::route))
            .route("/v1/responses", post(responses::route))
            .route("/v1/messages", post(messages::route))
            .route("/v1/messages/count_tokens", post(messages::count))
            .route("/", head(StatusCode::OK))
            .route("/tokenize", post(tokenize::tokenize))
            .route("/detokenize", post(tokenize::detokenize))
            .route("/tokenizer_info", get(tokenize::info))
            .route("/inference/v1/generate", post(generate::route))
            .route("/v1/load_lora_adapter", post(adapters::load))
            .route("/v1/unload_lora_adapter", post(adapters::unload))
            .method_not_allowed_fallback(other_method)
            .fallback(other_path)
            .with_state(Arc::clone(self))
    }
}

async fn other_path(State(server): State<Arc<ModelServer>>, uri: Uri) -> Response {
    RouteOutcome::refusal_outcome(Refusal::no_path(&uri, CHAT_PATH)).count_answer(&server, "other")
}

async fn other_method(State(server): State<Arc<ModelServer>>, request: Request) -> Response {
    let path = request.uri().path();
    let allow = match path {
        "/" => "HEAD",
        "/tokenizer_info" => "GET",
        path if path.starts_with("/v1/models") => "GET",
        _ => "POST",
    };
    let refusal = Refusal::other_method(path, request.method(), allow);
    RouteOutcome::refusal_outcome(refusal).count_answer(&server, "other")
}

#[cfg(test)]
mod tests;

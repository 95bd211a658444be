//! `GET /v1/models`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::asked::RouteOutcome;
use super::catalog::Entry;
use super::server::ModelServer;
use crate::anthropic::{MessageModel, MessageModels, asks_for_models};
use crate::openai::models::{Lineage, ModelCard, ModelList};
use crate::refusal::json_response;

pub(super) async fn models(State(server): State<Arc<ModelServer>>, headers: HeaderMap) -> Response {
    let answer = server.catalog().map(|catalog| {
        let entries = catalog.all_entries();
        if asks_for_models(&headers) {
            let models: MessageModels = entries.iter().map(|entry| message_model(entry)).collect();
            return json_response(StatusCode::OK, &models);
        }
        let models: ModelList = entries.iter().map(|entry| model_card(entry)).collect();
        json_response(StatusCode::OK, &models)
    });
    RouteOutcome { model: String::new(), answer }.count_answer(&server, "models")
}

pub(super) async fn model(
    State(server): State<Arc<ModelServer>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let found = server.catalog().and_then(|catalog| catalog.find(Some(&name)));
    let answer = found.map(|entry| {
        if asks_for_models(&headers) {
            json_response(StatusCode::OK, &message_model(&entry))
        } else {
            json_response(StatusCode::OK, &model_card(&entry))
        }
    });
    RouteOutcome { model: String::new(), answer }.count_answer(&server, "models")
}

fn message_model(entry: &Entry) -> MessageModel {
    MessageModel::new(entry.name.clone(), entry.created)
}

fn model_card(entry: &Entry) -> ModelCard {
    let lineage = Lineage {
        root: entry.root.clone(),
        parent: entry.parent.clone(),
        max_model_len: Some(entry.context()),
    };
    ModelCard::new(entry.name.clone(), entry.created, Some(lineage))
}

//! `GET /v1/models`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::asked::RouteOutcome;
use super::catalog::Entry;
use super::server::ModelServer;
use crate::openai::models::{Lineage, ModelCard, ModelList};
use crate::refusal::json_response;

pub(super) async fn models(State(server): State<Arc<ModelServer>>) -> Response {
    let answer = server.catalog().map(|catalog| {
        let models: ModelList =
            catalog.all_entries().iter().map(|entry| model_card(entry)).collect();
        json_response(StatusCode::OK, &models)
    });
    RouteOutcome { model: String::new(), answer }.count_answer(&server, "models")
}

pub(super) async fn model(
    State(server): State<Arc<ModelServer>>,
    Path(name): Path<String>,
) -> Response {
    let found = server.catalog().and_then(|catalog| catalog.find(Some(&name)));
    let answer = found.map(|entry| json_response(StatusCode::OK, &model_card(&entry)));
    RouteOutcome { model: String::new(), answer }.count_answer(&server, "models")
}

fn model_card(entry: &Entry) -> ModelCard {
    let lineage = Lineage {
        root: entry.root.clone(),
        parent: entry.parent.clone(),
        max_model_len: Some(entry.context()),
    };
    ModelCard::new(entry.name.clone(), entry.created, Some(lineage))
}

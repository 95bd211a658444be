//! `GET /v1/models`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use super::{Entry, ModelServer, Outcome};
use crate::refusal::json_response;

pub(super) async fn models(State(server): State<Arc<ModelServer>>) -> Response {
    let answer = server.catalog().map(|catalog| {
        let data: Vec<Value> = catalog.all().iter().map(|entry| described(entry)).collect();
        json_response(StatusCode::OK, &json!({"object": "list", "data": data}))
    });
    Outcome { model: String::new(), answer }.counted(&server, "models")
}

pub(super) async fn model(
    State(server): State<Arc<ModelServer>>,
    Path(name): Path<String>,
) -> Response {
    let found = server.catalog().and_then(|catalog| catalog.find(Some(&name)));
    let answer = found.map(|entry| json_response(StatusCode::OK, &described(&entry)));
    Outcome { model: String::new(), answer }.counted(&server, "models")
}

fn described(entry: &Entry) -> Value {
    json!({
        "id": entry.name,
        "object": "model",
        "created": entry.created,
        "owned_by": "maverl",
        "root": entry.root,
        "parent": entry.parent,
        "max_model_len": entry.context(),
    })
}

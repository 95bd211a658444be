//! Routes and sessions of OpenEnv, of `maverl serve environment`.
//!
//! A WebSocket at `/ws` is a session. Requests over HTTP describe the environment and its tasks.
//!
//! After the upgrade to a WebSocket, the listener no longer counts the connection, and its shutdown does not wait for
//! it. The number of sessions therefore has a limit of its own.

mod frames;
mod session;
mod socket;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

use crate::body;
use crate::environments::server::{EnvironmentServer, MOST_BYTES, ServedEnvironment};
use crate::openai::{Fields, request};
use crate::refusal::Refusal;
use crate::refusal::json_response;
use maverl::task::Task;

/// Returns the routes of OpenEnv.
pub(super) fn router(server: Arc<EnvironmentServer>) -> Router {
    Router::new()
        .route("/ws", get(socket::accept))
        .route("/metadata", get(metadata))
        .route("/schema", get(schema))
        .route("/list_environments", get(environments))
        .route("/{name}/splits", get(splits))
        .route("/{name}/{what}", post(list_tasks))
        .method_not_allowed_fallback(other_method)
        .fallback(other_path)
        .with_state(server)
}

/// Returns the environment if it has this name.
fn environment_named(
    server: &EnvironmentServer,
    name: &str,
) -> Result<Arc<ServedEnvironment>, Refusal> {
    let served = server.served_environment()?;
    if served.name == name {
        return Ok(served);
    }
    let shown: String = name.chars().take(80).collect();
    let message = format!("there is no environment {shown:?}; there is `{}`", served.name);
    Err(Refusal::new(StatusCode::NOT_FOUND, "not_found", message))
}

fn respond_with(answer: Result<Value, Refusal>) -> Response {
    match answer {
        Ok(answer) => json_response(StatusCode::OK, &answer),
        Err(refusal) => refusal.into_response(),
    }
}

async fn metadata(State(server): State<Arc<EnvironmentServer>>) -> Response {
    respond_with(server.served_environment().map(|served| {
        json!({
            "name": served.name,
            "description": format!("The environment `{}` of maverl", served.name),
            "readme_content": null,
            "version": env!("CARGO_PKG_VERSION"),
            "author": null,
            "documentation_url": null,
        })
    }))
}

async fn schema(State(server): State<Arc<EnvironmentServer>>) -> Response {
    respond_with(server.served_environment().map(|served| frames::schema(&served)))
}

async fn environments(State(server): State<Arc<EnvironmentServer>>) -> Response {
    respond_with(server.served_environment().map(|served| json!([served.name])))
}

async fn splits(
    State(server): State<Arc<EnvironmentServer>>,
    Path(name): Path<String>,
) -> Response {
    respond_with(environment_named(&server, &name).map(|served| {
        let splits = &served.tasks.0;
        splits.iter().map(|(name, _)| json!({"name": name, "type": split_kind(name)})).collect()
    }))
}

request! {
    /// A request for tasks.
    struct TasksRequest {
        split: Option<String>,
        index: Option<usize> [0, usize::MAX],
        start: Option<usize> [0, usize::MAX],
        stop: Option<usize> [0, usize::MAX],
    }
}

/// Answers a request for tasks.
async fn list_tasks(
    State(server): State<Arc<EnvironmentServer>>,
    Path((name, what)): Path<(String, String)>,
    request: Request,
) -> Response {
    let answer = async {
        let served = environment_named(&server, &name)?;
        let bytes = body::read(request.into_body(), MOST_BYTES).await?;
        let mut fields = Fields::parse(&bytes)?;
        let TasksRequest { split, index, start, stop } = fields.read()?;
        let tasks = &served.tasks;
        let split = tasks
            .split(&split.unwrap_or_default())
            .map_err(|what| Refusal::invalid("split", what))?;
        match what.as_str() {
            "tasks" => Ok(json!({"tasks": describe_tasks(split), "env_name": served.name})),
            "num_tasks" => Ok(json!({"num_tasks": split.len()})),
            "task" => match index.and_then(|index| split.get(index)) {
                Some(task) => Ok(json!({"task": description(task)})),
                None => {
                    let message = format!("`index` must be from 0 to {}", split.len() - 1);
                    Err(Refusal::invalid("index", message))
                }
            },
            "task_range" => {
                let start = start.unwrap_or(0).min(split.len());
                let stop = stop.unwrap_or(split.len()).min(split.len());
                Ok(json!({"tasks": describe_tasks(&split[start.min(stop)..stop])}))
            }
            _ => Err(not_found(&format!("/{name}/{what}"))),
        }
    };
    respond_with(answer.await)
}

/// Returns the part of a task that clients are told.
fn description(task: &Task) -> Value {
    json!({"id": task.id, "source": task.source, "question": task.question})
}

fn split_kind(name: &str) -> &str {
    if matches!(name, "train" | "test") { name } else { "validation" }
}

fn describe_tasks(tasks: &[Task]) -> Vec<Value> {
    tasks.iter().map(description).collect()
}

fn not_found(path: &str) -> Refusal {
    let path: String = path.chars().take(80).collect();
    let message = format!(
        "there is nothing at `{path}`; sessions are WebSockets at `/ws`, as OpenEnv's clients open them"
    );
    Refusal::new(StatusCode::NOT_FOUND, "not_found", message)
}

async fn other_path(uri: Uri) -> Response {
    not_found(uri.path()).into_response()
}

async fn other_method(request: Request) -> Response {
    let (path, method) = (request.uri().path(), request.method());
    let allow = match path.rsplit('/').next() {
        Some("tasks" | "num_tasks" | "task" | "task_range") => "POST",
        _ if method == Method::GET => return not_found(path).into_response(),
        _ => "GET",
    };
    let message = format!("`{path}` takes {allow}, not {method}");
    let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
    Refusal { allow: Some(allow), ..refusal }.into_response()
}

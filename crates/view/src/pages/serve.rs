//! The pages on the listener of the servers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use maverl_serve::{Limits, Listener};
use tokio::net::TcpListener;

use super::guard::protect_pages;
use super::viewer::Viewer;
use super::{api, assets};
use crate::report::problem::ReportProblem;

/// Maximum number of concurrent connections; further ones wait to be accepted.
const CONNECTIONS: usize = 256;
/// Maximum time that a stop waits for requests: streams of events have no end.
const DRAIN: Duration = Duration::from_millis(200);

/// Serves the pages until `stop` resolves.
pub async fn serve_pages(
    listener: TcpListener,
    viewer: Arc<Viewer>,
    stop: impl Future<Output = ()>,
) {
    let limits = Limits { connections: CONNECTIONS, drain: DRAIN, ..Limits::default() };
    Listener::new(listener, limits).serve(page_router(viewer), stop).await;
}

/// Returns the routes of the pages with their conditions.
pub(crate) fn page_router(viewer: Arc<Viewer>) -> Router {
    let (path, keys) = (viewer.secret_path(), viewer.path_keys());
    let router = Router::new()
        .route(&path, get(async || file_response("")))
        .route(
            &format!("{path}{{file}}"),
            get(async |Path(name): Path<String>| file_response(&name)),
        )
        .nest(&format!("{path}api"), api::api_routes())
        .route(&format!("{path}api/"), get(async || api::unknown_path()))
        .fallback(async || file_response("/"))
        .with_state(viewer);
    protect_pages(router, keys)
}

/// Returns a file of the pages.
fn file_response(name: &str) -> Response {
    match assets::find_file(name) {
        Some((content_type, text)) => {
            ([(axum::http::header::CONTENT_TYPE, content_type)], text).into_response()
        }
        None => ReportProblem::missing("there is no such page").into_response(),
    }
}

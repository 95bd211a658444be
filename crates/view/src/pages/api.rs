//! Paths of the interface: from a path and a query to JSON.

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawPathParams, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get};
use serde_json::Value;

use super::answer::{MOST_VALUES, bounded_data, json_response, refusal_response, stream_response};
use super::events::event_stream;
use super::query::QueryParameters;
use super::selection::read_selection;
use super::viewer::Viewer;
use crate::report::analyses::compare::compare_runs;
use crate::report::analyses::episode::{episode_json, turn_texts};
use crate::report::analyses::groups::group_samples;
use crate::report::analyses::search::RunningSearch;
use crate::report::analyses::team::{step_comparison, team_summary};
use crate::report::analyses::times::{step_times, step_trace, turn_times};
use crate::report::analyses::tokens::{TurnPrompt, turn_tokens};
use crate::report::problem::ReportProblem;
use crate::report::rows::episodes::{StoredEpisode, read_stored};
use crate::report::rows::run::ReportedRun;
use crate::report::watched::WatchedRun;

/// Maximum number of compared runs.
const COMPARED: usize = 12;

/// Result of a request.
type ApiAnswer = Result<Response, ReportProblem>;

/// Returns the routes of the interface, below the path of the pages.
pub(crate) fn api_routes() -> Router<Arc<Viewer>> {
    const EPISODE: &str = "/runs/{run}/episodes/{stage}/{step}/{n}";
    Router::new()
        .route("/runs", answer_route(|ask| Ok(json_response(&ask.viewer.run_lines()))))
        .route("/events", answer_route(answer_events))
        .route("/compare", answer_route(answer_compare))
        .route("/runs/{run}", answer_route(|ask| Ok(json_response(&ask.watched_run()?.overview()))))
        .route(
            "/runs/{run}/config",
            answer_route(|ask| Ok(json_response(&ask.watched_run()?.configuration_texts()))),
        )
        .route("/runs/{run}/series", answer_route(answer_series))
        .route("/runs/{run}/episodes", answer_route(answer_episodes))
        .route("/runs/{run}/search", answer_route(answer_search))
        .route(EPISODE, answer_route(answer_episode))
        .route(&format!("{EPISODE}/turns/{{turn}}"), answer_route(answer_turn))
        .route(&format!("{EPISODE}/turns/{{turn}}/tokens"), answer_route(answer_tokens))
        .route("/runs/{run}/spans", answer_route(answer_spans))
        .route(
            "/runs/{run}/clock/{step}",
            answer_route(|ask| {
                bounded_data(&turn_times(&ask.run_content()?.files, ask.path_number("step")?)?)
            }),
        )
        .route(
            "/runs/{run}/trace/{step}",
            answer_route(|ask| {
                Ok(json_response(&step_trace(&ask.run_content()?.files, ask.path_number("step")?)?))
            }),
        )
        .route(
            "/runs/{run}/team",
            answer_route(|ask| Ok(json_response(&team_summary(&*ask.run_content()?)?))),
        )
        .route(
            "/runs/{run}/replies",
            answer_route(|ask| bounded_data(&ask.watched_run()?.reply_findings().answer)),
        )
        .route(
            "/runs/{run}/steps/{step}",
            answer_route(|ask| {
                bounded_data(&step_comparison(&*ask.run_content()?, ask.path_number("step")?)?)
            }),
        )
        .route(
            "/runs/{run}/groups",
            answer_route(|ask| bounded_data(&ask.watched_run()?.largest_groups()?)),
        )
        .route(
            "/runs/{run}/groups/{step}",
            answer_route(|ask| {
                bounded_data(&ask.watched_run()?.step_groups(ask.path_number("step")?)?)
            }),
        )
        .route("/runs/{run}/groups/{step}/{id}", answer_route(answer_group))
        .fallback(async || unknown_path())
}

/// Returns the answer to a path that the interface does not have.
pub(crate) fn unknown_path() -> Response {
    ReportProblem::missing("there is no such path").into_response()
}

/// A request for data.
struct ApiRequest {
    viewer: Arc<Viewer>,
    /// Parts of the path by name.
    path: Vec<(String, String)>,
    query: QueryParameters,
    /// Id of the last event that the client has seen.
    last_event: Option<String>,
}

/// Returns the handler of a path, which answers in a thread that may block.
fn answer_route(answer: fn(&ApiRequest) -> ApiAnswer) -> MethodRouter<Arc<Viewer>> {
    get(
        async move |State(viewer): State<Arc<Viewer>>,
                    path: RawPathParams,
                    RawQuery(query): RawQuery,
                    headers: HeaderMap| {
            let path = path.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
            let path: Vec<(String, String)> = path.collect();
            let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
            let last_event = last.map(str::to_owned);
            let found = tokio::task::spawn_blocking(move || {
                let query = QueryParameters::new(query.as_deref().unwrap_or_default())?;
                answer(&ApiRequest { viewer, path, query, last_event })
            });
            match found.await {
                Ok(found) => found.into_response(),
                Err(_) => refusal_response(StatusCode::INTERNAL_SERVER_ERROR, "the answer failed"),
            }
        },
    )
}

impl ApiRequest {
    /// Returns a part of the path.
    fn path_part(&self, name: &str) -> &str {
        let found = self.path.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// Returns a part of the path that is a number.
    fn path_number(&self, name: &str) -> Result<u64, ReportProblem> {
        let text = self.path_part(name);
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let found = text.parse().ok().filter(|_| is_number);
        found.ok_or_else(|| ReportProblem::invalid("a part of the path is not a number"))
    }

    /// Returns the run that the path names.
    fn watched_run(&self) -> Result<Arc<WatchedRun>, ReportProblem> {
        let found = self.viewer.find_run(self.path_part("run"));
        found.ok_or_else(|| ReportProblem::missing("there is no such run"))
    }

    /// Returns the numbers of the run that the path names.
    fn run_content(&self) -> Result<Arc<ReportedRun>, ReportProblem> {
        Ok(Arc::clone(&self.watched_run()?.run))
    }

    /// Reads the episode that the path names.
    fn stored_episode(&self) -> Result<StoredEpisode, ReportProblem> {
        let run = self.run_content()?;
        let (step, n) = (self.path_number("step")?, self.path_number("n")?);
        read_stored(&run, self.path_part("stage"), step, n)
    }
}

fn answer_events(ask: &ApiRequest) -> ApiAnswer {
    let events = event_stream(ask.viewer.watched_runs(), ask.last_event.as_deref())?;
    Ok(stream_response("text/event-stream", events))
}

fn answer_compare(ask: &ApiRequest) -> ApiAnswer {
    let given = ask.query.text_value("runs");
    let given = given.ok_or_else(|| ReportProblem::invalid("`runs` is missing: names of runs"))?;
    let runs: Option<Vec<_>> = given.split(',').map(|name| ask.viewer.find_run(name)).collect();
    let runs = runs.ok_or_else(|| ReportProblem::missing("there is no such run"))?;
    if runs.len() > COMPARED {
        return Err(ReportProblem::invalid(format!("at most {COMPARED} runs are compared")));
    }
    Ok(json_response(&compare_watched(&runs)))
}

/// Compares runs.
pub(crate) fn compare_watched(runs: &[Arc<WatchedRun>]) -> Value {
    let lines: Vec<Value> = runs.iter().map(|run| run.list_line()).collect();
    let runs: Vec<&ReportedRun> = runs.iter().map(|run| &*run.run).collect();
    compare_runs(&runs, &lines)
}

/// Returns metrics by step, with the step at which the next answer continues if there are too many for one.
fn answer_series(ask: &ApiRequest) -> ApiAnswer {
    let run = ask.run_content()?;
    let names = ask.query.text_value("names");
    let names: Vec<&str> = names.map_or(Vec::new(), |names| names.split(',').collect());
    let from = ask.query.parse_value("from")?.unwrap_or(0);
    bounded_data(&run.lock_content().series.select_columns(&names, from, MOST_VALUES))
}

/// Returns selected rows of episodes.
fn answer_episodes(ask: &ApiRequest) -> ApiAnswer {
    let run = ask.run_content()?;
    let selection = read_selection(&ask.query)?;
    let content = run.lock_content();
    let (found, total) = content.index.select_rows(&selection);
    let rows =
        content.index.read_rows(content.rows_file(), &found).map_err(ReportProblem::unreadable)?;
    let all = content.index.len();
    let scanning = content.scanning;
    bounded_data(&object!({ "total": total, "of": all, "rows": rows, "scanning": scanning }))
}

/// Returns the stream of found episodes, as lines of JSON.
fn answer_search(ask: &ApiRequest) -> ApiAnswer {
    let run = ask.run_content()?;
    let words = ask.query.text_value("q");
    let words =
        words.ok_or_else(|| ReportProblem::invalid("`q` is missing: the words to look for"))?;
    let mut selection = read_selection(&ask.query)?;
    selection.select_all();
    let search = RunningSearch::begin(&run, words, &selection)?;
    Ok(stream_response("application/x-ndjson", Box::new(search)))
}

fn answer_episode(ask: &ApiRequest) -> ApiAnswer {
    bounded_data(&episode_json(&*ask.run_content()?, &ask.stored_episode()?)?)
}

fn answer_turn(ask: &ApiRequest) -> ApiAnswer {
    let StoredEpisode { episode, .. } = ask.stored_episode()?;
    bounded_data(&turn_texts(&episode, ask.path_number("turn")? as usize)?)
}

fn answer_tokens(ask: &ApiRequest) -> ApiAnswer {
    let StoredEpisode { row, episode, .. } = ask.stored_episode()?;
    let is_whole = ask.query.text_value("prompt") == Some("whole");
    let prompt = if is_whole { TurnPrompt::All } else { TurnPrompt::New };
    let turn = ask.path_number("turn")? as usize;
    bounded_data(&turn_tokens(&*ask.run_content()?, &row, &episode, turn, prompt)?)
}

fn answer_spans(ask: &ApiRequest) -> ApiAnswer {
    let run = ask.run_content()?;
    let (from, to) = (ask.query.parse_value("from")?, ask.query.parse_value("to")?);
    bounded_data(&step_times(&run.files, from.unwrap_or(0), to.unwrap_or(u64::MAX)))
}

fn answer_group(ask: &ApiRequest) -> ApiAnswer {
    let run = ask.run_content()?;
    let (step, id) = (ask.path_number("step")?, ask.path_number("id")? as usize);
    bounded_data(&group_samples(&run, step, id)?)
}

//! Paths of the interface: from a path and a query to JSON.

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawPathParams, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get};
use serde_json::Value;

use super::answer::{MOST_VALUES, bounded_data, data, refusal, stream};
use super::events::event_stream;
use super::query::Query;
use super::selection::read_selection;
use super::viewer::Viewer;
use crate::report::analyses::compare::compare_runs;
use crate::report::analyses::episode::{episode_json, turn_texts};
use crate::report::analyses::groups::group_samples;
use crate::report::analyses::search::Search;
use crate::report::analyses::team::{step_comparison, team_summary};
use crate::report::analyses::times::{step_times, step_trace, turn_times};
use crate::report::analyses::tokens::{PromptTokens, turn_tokens};
use crate::report::problem::Problem;
use crate::report::rows::episodes::{StoredEpisode, read_stored};
use crate::report::rows::run::Run;
use crate::report::watched::WatchedRun;

/// Maximum number of compared runs.
const COMPARED: usize = 12;

/// Result of a request.
type Answer = Result<Response, Problem>;

/// Returns the routes of the interface, below the path of the pages.
pub(crate) fn routes() -> Router<Arc<Viewer>> {
    const EPISODE: &str = "/runs/{run}/episodes/{stage}/{step}/{n}";
    Router::new()
        .route("/runs", answered(|ask| Ok(data(&ask.viewer.lines()))))
        .route("/events", answered(events))
        .route("/compare", answered(compare))
        .route("/runs/{run}", answered(|ask| Ok(data(&ask.watched()?.overview()))))
        .route("/runs/{run}/config", answered(|ask| Ok(data(&ask.watched()?.configurations()))))
        .route("/runs/{run}/series", answered(series))
        .route("/runs/{run}/episodes", answered(episodes))
        .route("/runs/{run}/search", answered(search))
        .route(EPISODE, answered(|ask| bounded_data(&episode_json(&*ask.run()?, &ask.stored()?)?)))
        .route(&format!("{EPISODE}/turns/{{turn}}"), answered(turn))
        .route(&format!("{EPISODE}/turns/{{turn}}/tokens"), answered(tokens))
        .route("/runs/{run}/spans", answered(spans))
        .route(
            "/runs/{run}/clock/{step}",
            answered(|ask| bounded_data(&turn_times(&ask.run()?.files, ask.number("step")?)?)),
        )
        .route(
            "/runs/{run}/trace/{step}",
            answered(|ask| Ok(data(&step_trace(&ask.run()?.files, ask.number("step")?)?))),
        )
        .route("/runs/{run}/team", answered(|ask| Ok(data(&team_summary(&*ask.run()?)?))))
        .route(
            "/runs/{run}/replies",
            answered(|ask| bounded_data(&ask.watched()?.replies().answer)),
        )
        .route(
            "/runs/{run}/steps/{step}",
            answered(|ask| bounded_data(&step_comparison(&*ask.run()?, ask.number("step")?)?)),
        )
        .route(
            "/runs/{run}/groups",
            answered(|ask| bounded_data(&ask.watched()?.largest_groups()?)),
        )
        .route(
            "/runs/{run}/groups/{step}",
            answered(|ask| bounded_data(&ask.watched()?.step_groups(ask.number("step")?)?)),
        )
        .route("/runs/{run}/groups/{step}/{id}", answered(group))
        .fallback(async || unknown_path())
}

/// Returns the answer to a path that the interface does not have.
pub(crate) fn unknown_path() -> Response {
    Problem::missing("there is no such path").into_response()
}

/// A request for data.
struct Question {
    viewer: Arc<Viewer>,
    /// Parts of the path by name.
    path: Vec<(String, String)>,
    query: Query,
    /// Id of the last event that the client has seen.
    last_event: Option<String>,
}

/// Returns the handler of a path, which answers in a thread that may block.
fn answered(answer: fn(&Question) -> Answer) -> MethodRouter<Arc<Viewer>> {
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
                let query = Query::new(query.as_deref().unwrap_or_default())?;
                answer(&Question { viewer, path, query, last_event })
            });
            match found.await {
                Ok(found) => found.into_response(),
                Err(_) => refusal(StatusCode::INTERNAL_SERVER_ERROR, "the answer failed"),
            }
        },
    )
}

impl Question {
    /// Returns a part of the path.
    fn part(&self, name: &str) -> &str {
        let found = self.path.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// Returns a part of the path that is a number.
    fn number(&self, name: &str) -> Result<u64, Problem> {
        let text = self.part(name);
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let found = text.parse().ok().filter(|_| is_number);
        found.ok_or_else(|| Problem::invalid("a part of the path is not a number"))
    }

    /// Returns the run that the path names.
    fn watched(&self) -> Result<Arc<WatchedRun>, Problem> {
        let found = self.viewer.run(self.part("run"));
        found.ok_or_else(|| Problem::missing("there is no such run"))
    }

    /// Returns the numbers of the run that the path names.
    fn run(&self) -> Result<Arc<Run>, Problem> {
        Ok(Arc::clone(&self.watched()?.run))
    }

    /// Reads the episode that the path names.
    fn stored(&self) -> Result<StoredEpisode, Problem> {
        let run = self.run()?;
        let (step, n) = (self.number("step")?, self.number("n")?);
        read_stored(&run, self.part("stage"), step, n)
    }
}

fn events(ask: &Question) -> Answer {
    let events = event_stream(ask.viewer.runs(), ask.last_event.as_deref())?;
    Ok(stream("text/event-stream", events))
}

fn compare(ask: &Question) -> Answer {
    let missing = || Problem::invalid("`runs` is missing: names of runs");
    let given = ask.query.text("runs").ok_or_else(missing)?;
    let runs: Option<Vec<_>> = given.split(',').map(|name| ask.viewer.run(name)).collect();
    let runs = runs.ok_or_else(|| Problem::missing("there is no such run"))?;
    if runs.len() > COMPARED {
        return Err(Problem::invalid(format!("at most {COMPARED} runs are compared")));
    }
    Ok(data(&compared(&runs)))
}

/// Compares runs.
pub(crate) fn compared(runs: &[Arc<WatchedRun>]) -> Value {
    let lines: Vec<Value> = runs.iter().map(|run| run.line()).collect();
    let runs: Vec<&Run> = runs.iter().map(|run| &*run.run).collect();
    compare_runs(&runs, &lines)
}

/// Returns metrics by step, with the step at which the next answer continues if there are too many for one.
fn series(ask: &Question) -> Answer {
    let run = ask.run()?;
    let names = ask.query.text("names");
    let names: Vec<&str> = names.map_or(Vec::new(), |names| names.split(',').collect());
    let from = ask.query.parse("from")?.unwrap_or(0);
    bounded_data(&run.now().series.columns(&names, from, MOST_VALUES))
}

/// Returns selected rows of episodes.
fn episodes(ask: &Question) -> Answer {
    let run = ask.run()?;
    let selection = read_selection(&ask.query)?;
    let content = run.now();
    let (found, total) = content.index.select(&selection);
    let rows = content.index.read(content.rows_file(), &found).map_err(Problem::unreadable)?;
    let all = content.index.len();
    let scanning = content.scanning;
    bounded_data(&object!({ "total": total, "of": all, "rows": rows, "scanning": scanning }))
}

/// Returns the stream of found episodes, as lines of JSON.
fn search(ask: &Question) -> Answer {
    let run = ask.run()?;
    let missing = || Problem::invalid("`q` is missing: the words to look for");
    let words = ask.query.text("q").ok_or_else(missing)?;
    let mut selection = read_selection(&ask.query)?;
    selection.select_all();
    let search = Search::begin(&run, words, &selection)?;
    Ok(stream("application/x-ndjson", Box::new(search)))
}

fn turn(ask: &Question) -> Answer {
    let StoredEpisode { episode, .. } = ask.stored()?;
    bounded_data(&turn_texts(&episode, ask.number("turn")? as usize)?)
}

fn tokens(ask: &Question) -> Answer {
    let StoredEpisode { row, episode, .. } = ask.stored()?;
    let is_whole = ask.query.text("prompt") == Some("whole");
    let prompt = if is_whole { PromptTokens::All } else { PromptTokens::New };
    let turn = ask.number("turn")? as usize;
    bounded_data(&turn_tokens(&*ask.run()?, &row, &episode, turn, prompt)?)
}

fn spans(ask: &Question) -> Answer {
    let run = ask.run()?;
    let (from, to) = (ask.query.parse("from")?, ask.query.parse("to")?);
    bounded_data(&step_times(&run.files, from.unwrap_or(0), to.unwrap_or(u64::MAX)))
}

fn group(ask: &Question) -> Answer {
    let run = ask.run()?;
    let (step, id) = (ask.number("step")?, ask.number("id")? as usize);
    bounded_data(&group_samples(&run, step, id)?)
}

//! The selection of rows of episodes by the parameters of a request.

use super::query::Query;
use crate::report::problem::Problem;
use crate::report::rows::selection::{Flag, Key, Selection};

/// Maximum number of rows of an answer.
const MOST: usize = 500;
/// Number of rows of an answer if the request names none.
const ROWS: usize = 100;

/// Reads a selection from the parameters of a request.
pub(crate) fn read_selection(query: &Query) -> Result<Selection, Problem> {
    let wrong = |name: &str, given: &str, known: &str| {
        let message = format!("`{name}` cannot be `{given}`; it is one of {known}");
        Problem::invalid(message)
    };
    let solved = match query.text("solved") {
        None => None,
        Some("1") => Some(true),
        Some("0") => Some(false),
        Some(other) => return Err(wrong("solved", other, "0, 1")),
    };
    let flag = match query.text("flag") {
        None => None,
        Some("malformed") => Some(Flag::Malformed),
        Some("truncated") => Some(Flag::Truncated),
        Some("unscored") => Some(Flag::Unscored),
        Some(other) => return Err(wrong("flag", other, "malformed, truncated, unscored")),
    };
    let sort = query.text("sort").unwrap_or("step");
    let (name, descending) = match sort.strip_prefix('-') {
        Some(name) => (name, true),
        None => (sort, false),
    };
    let key = match name {
        "step" => Key::Step,
        "score" => Key::Score,
        "turns" => Key::Turns,
        "tokens" => Key::Tokens,
        "reward" => Key::Reward,
        other => return Err(wrong("sort", other, "step, score, turns, tokens, reward")),
    };
    let text = |name| query.text(name).map(str::to_owned);
    Ok(Selection {
        steps: query.range("step")?,
        score: query.range("score")?,
        stage: text("stage"),
        seat: text("seat"),
        task: text("task"),
        solved,
        flag,
        sort: (key, descending),
        offset: query.parse("offset")?.unwrap_or(0),
        limit: query.parse("limit")?.unwrap_or(ROWS).min(MOST),
    })
}

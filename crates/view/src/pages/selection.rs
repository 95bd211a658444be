//! The selection of rows of episodes by the parameters of a request.

use super::query::QueryParameters;
use crate::report::problem::ReportProblem;
use crate::report::rows::selection::{Flag, RowSelection, SortKey};

/// Maximum number of rows of an answer.
const MOST: usize = 500;
/// Number of rows of an answer if the request names none.
const ROWS: usize = 100;

/// Reads a selection from the parameters of a request.
pub(crate) fn read_selection(query: &QueryParameters) -> Result<RowSelection, ReportProblem> {
    let solved = match query.text_value("solved") {
        None => None,
        Some("1") => Some(true),
        Some("0") => Some(false),
        Some(other) => return Err(wrong_choice("solved", other, "0, 1")),
    };
    let flag = match query.text_value("flag") {
        None => None,
        Some("malformed") => Some(Flag::Malformed),
        Some("truncated") => Some(Flag::Truncated),
        Some("unscored") => Some(Flag::Unscored),
        Some(other) => return Err(wrong_choice("flag", other, "malformed, truncated, unscored")),
    };
    let sort = query.text_value("sort").unwrap_or("step");
    let (name, descending) = sort.strip_prefix('-').map_or((sort, false), |name| (name, true));
    let key = match name {
        "step" => SortKey::Step,
        "score" => SortKey::Score,
        "turns" => SortKey::Turns,
        "tokens" => SortKey::Tokens,
        "reward" => SortKey::Reward,
        other => return Err(wrong_choice("sort", other, "step, score, turns, tokens, reward")),
    };
    Ok(RowSelection {
        steps: query.range_value("step")?,
        score: query.range_value("score")?,
        stage: query.text_value("stage").map(str::to_owned),
        seat: query.text_value("seat").map(str::to_owned),
        task: query.text_value("task").map(str::to_owned),
        solved,
        flag,
        sort: (key, descending),
        offset: query.parse_value("offset")?.unwrap_or(0),
        limit: query.parse_value("limit")?.unwrap_or(ROWS).min(MOST),
    })
}

/// Returns the problem of a parameter that has none of the known values.
fn wrong_choice(name: &str, given: &str, known: &str) -> ReportProblem {
    ReportProblem::invalid(format!("`{name}` cannot be `{given}`; it is one of {known}"))
}

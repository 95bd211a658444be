//! Selection of rows of episodes by the parameters of a request.

use crate::pages::query::{Query, Response};

/// Maximum number of rows of an answer.
const MOST: usize = 500;
/// Number of rows of an answer if the request names none.
const ROWS: usize = 100;

/// Selection and order of rows.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    pub(crate) steps: (Option<u32>, Option<u32>),
    pub(crate) score: (Option<f64>, Option<f64>),
    pub(crate) stage: Option<String>,
    pub(crate) seat: Option<String>,
    pub(crate) task: Option<String>,
    pub(crate) solved: Option<bool>,
    pub(crate) flag: Option<Flag>,
    /// Key, and true for descending order.
    pub(crate) sort: (Key, bool),
    pub(crate) offset: usize,
    pub(crate) limit: usize,
}

/// Property of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flag {
    Malformed,
    Truncated,
    Unscored,
}

/// Order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Key {
    #[default]
    Step,
    Score,
    Turns,
    Tokens,
    Reward,
}

impl Selection {
    /// Reads a selection from the parameters of a request.
    pub(crate) fn new(query: &Query) -> Result<Self, Response> {
        let wrong = |name: &str, given: &str, known: &str| {
            let message = format!("`{name}` cannot be `{given}`; it is one of {known}");
            Response::refusal(400, &message)
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
        Ok(Self {
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
}

impl Selection {
    /// Selects all fitting rows instead of a page of them.
    pub(crate) fn all(&mut self) {
        (self.offset, self.limit) = (0, usize::MAX);
    }
}

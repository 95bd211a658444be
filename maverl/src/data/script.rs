//! Replies in a file, for an endpoint without a server.

use std::path::Path;

use serde::Deserialize;

use super::error::DataError;
use super::file::read_text;

/// A line of a script.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptLine {
    /// Reply.
    pub reply: String,
    /// Restricts the line to this seat.
    pub seat: Option<String>,
    /// Restricts the line to prompts that contain this text.
    pub contains: Option<String>,
}

/// Reads the lines of a script, JSON objects.
///
/// # Errors
///
/// If the file cannot be read, a line is malformed, or there is no line.
pub fn script(path: &Path) -> Result<Vec<ScriptLine>, DataError> {
    let text =
        read_text(path).map_err(|source| DataError::Read { path: path.to_owned(), source })?;
    parse_lines(&text).map_err(|(line, message)| DataError::Damaged {
        path: path.to_owned(),
        line,
        message,
    })
}

/// Parses lines. An error has the number of its line.
fn parse_lines(text: &str) -> Result<Vec<ScriptLine>, (usize, String)> {
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        lines.push(serde_json::from_str(line).map_err(|error| (number, error.to_string()))?);
    }
    if lines.is_empty() { Err((1, "the script holds no reply".to_owned())) } else { Ok(lines) }
}

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
    let damaged = |line, message| DataError::Damaged { path: path.to_owned(), line, message };
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let read = |(number, line)| {
        serde_json::from_str(line).map_err(|error| damaged(number, error.to_string()))
    };
    let lines: Vec<ScriptLine> = lines.map(read).collect::<Result<_, _>>()?;
    if lines.is_empty() {
        Err(damaged(1, "the script holds no reply".to_owned()))
    } else {
        Ok(lines)
    }
}

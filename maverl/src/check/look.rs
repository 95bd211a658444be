//! Problems that an orchestra finds in its own options, and their places.

use std::path::Path;

use serde_json::Value;

use super::diagnostic::{Problems, path, within};
use crate::registry::OrchestraEntry;

/// Validates the options of an orchestra, and reports its problems. Returns its warnings.
pub(super) fn orchestra(
    name: &str,
    options: &Value,
    entry: &OrchestraEntry,
    base: &Path,
    problems: &mut Problems<'_>,
) -> Vec<String> {
    let table = path(["orchestra"]);
    (entry.look)(options, base).unwrap_or_else(|found| {
        for problem in found {
            let at = place(&table, options, &problem);
            problems.value(&at, format!("orchestra `{name}`: {problem}"), None);
        }
        Vec::new()
    })
}

/// Returns the path of the option that a message begins with, or that of the table.
pub(super) fn place(table: &[String], options: &Value, message: &str) -> Vec<String> {
    let quoted = message.strip_prefix('`').and_then(|rest| rest.split_once('`'));
    let option = quoted.map(|(option, _)| option).filter(|option| options.get(option).is_some());
    option.map_or(table.to_vec(), |option| within(table, option))
}

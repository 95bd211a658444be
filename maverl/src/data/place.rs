//! Places for messages: the row of a task, and files that were not found.

use std::path::{Path, PathBuf};

use crate::config::TaskConfig;
use crate::task::{Task, TaskList};

/// Tasks with their rows in the file.
#[derive(Debug, Clone, Default)]
pub struct PlacedTasks {
    /// Tasks.
    pub tasks: TaskList,
    /// Line or row of each task, from 1; for built-in data, its index.
    pub lines: Vec<usize>,
}

impl PlacedTasks {
    /// Appends the task of a row.
    pub(super) fn push(&mut self, task: &Task, line: usize) {
        self.tasks.push(task);
        self.lines.push(line);
    }
}

/// Returns a message of an environment after the file and row of the first task that it names. A message that names no task,
/// or one of built-in data, is unchanged.
pub(crate) fn with_place(config: &TaskConfig, placed: &PlacedTasks, message: &str) -> String {
    let place = place_of(config, placed, message);
    place.map_or_else(String::new, |place| place + ": ") + message
}

fn place_of(config: &TaskConfig, placed: &PlacedTasks, message: &str) -> Option<String> {
    let named = message.match_indices("the task `");
    let begins: Vec<&str> = named.map(|(at, found)| &message[at + found.len()..]).collect();
    let mut names = placed.tasks.names().zip(&placed.lines).filter(|_| !begins.is_empty());
    let ((_, source), line) = names
        .find(|((id, source), _)| begins.iter().any(|begin| begins_with_name(begin, id, source)))?;
    let component = config.mixture.get(Task::component_of(source));
    let data = component.map_or(&config.data, |component| &component.data);
    (!data.starts_with("builtin:")).then(|| format!("{data}:{line}"))
}

/// Returns true if a text begins with an id and its source, in backticks, after the first one.
fn begins_with_name(text: &str, id: &str, source: &str) -> bool {
    let rest = text.strip_prefix(id).and_then(|rest| rest.strip_prefix("` of `"));
    rest.and_then(|rest| rest.strip_prefix(source)).is_some_and(|rest| rest.starts_with('`'))
}

/// Returns true if two names, relative to `base`, are of one file or of the same built-in data.
pub fn same_data(one: &str, other: &str, base: &Path) -> bool {
    if one == other {
        return true;
    }
    let [one, other] = [one, other].map(|name| std::fs::canonicalize(base.join(name)).ok());
    one.is_some() && one == other
}

/// Returns a path in absolute form.
fn whole(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Formats a path for messages, in backticks.
pub(super) fn shown(path: &Path) -> String {
    format!("`{}`", whole(path).display())
}

/// Suggests the intended path if a path does not exist; empty without a suggestion.
pub(super) fn hint(path: &Path) -> &'static str {
    let mut parts = path.components().map(|part| part.as_os_str().to_string_lossy());
    if !path.exists() && parts.any(|part| part.starts_with('~')) {
        "; `~` is not expanded: write the whole path"
    } else {
        ""
    }
}

/// Describes a missing file, named as `name` and relative to `base`, or a path that is not a file; `None` if the file
/// exists.
pub fn missing(name: &str, base: &Path) -> Option<String> {
    let path = base.join(name);
    if path.is_file() {
        return None;
    }
    let place = shown(&path);
    Some(if path.is_dir() {
        format!("{place} is a directory")
    } else {
        format!("there is no file {place}{}", hint(&path))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_file_that_is_not_there_is_told_with_the_place_where_it_was_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        let at = base.display();
        std::fs::write(base.join("there"), "").unwrap();
        assert_eq!(missing("there", base), None);
        assert_eq!(missing("no/x", base).unwrap(), format!("there is no file `{at}/no/x`"));
        assert_eq!(missing("", base).unwrap(), format!("`{at}/` is a directory"));
        let home = missing("~/x", base).unwrap();
        let wanted = "; `~` is not expanded: write the whole path";
        assert_eq!(home, format!("there is no file `{at}/~/x`{wanted}"));
        // A path relative to the working directory is shown as an absolute path.
        let here = missing("no-such-file", Path::new("")).unwrap();
        assert!(
            here.starts_with("there is no file `/") && here.ends_with("/no-such-file`"),
            "{here}"
        );
    }
}

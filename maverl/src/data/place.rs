//! Where things are: the row of a task, and files that are not where they were looked for.

use std::path::{Path, PathBuf};

use crate::task::Task;

/// A task, and the row of its file that it stands in.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// The task.
    pub task: Task,
    /// Its line or row, from 1; of a built-in world, its place.
    pub line: usize,
}

/// A path as it is looked for: a whole one, whatever was written.
fn whole(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// A path for messages, in backticks.
pub(super) fn shown(path: &Path) -> String {
    format!("`{}`", whole(path).display())
}

/// What may have been meant by a path to nothing; empty if nothing comes to mind.
pub(super) fn hint(path: &Path) -> &'static str {
    let home = |part: std::path::Component<'_>| part.as_os_str().to_string_lossy().starts_with('~');
    match !path.exists() && path.components().any(home) {
        true => "; `~` is not expanded: write the whole path",
        false => "",
    }
}

/// What is said of a file, named as `name` and relative to `base`, that is not there or is none; `None` if it is there.
pub fn missing(name: &str, base: &Path) -> Option<String> {
    let path = base.join(name);
    if path.is_file() {
        return None;
    }
    let place = shown(&path);
    Some(match path.is_dir() {
        true => format!("{place} is a directory"),
        false => format!("there is no file {place}{}", hint(&path)),
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
        // A path that begins at the working directory is told from the root.
        let here = missing("no-such-file", Path::new("")).unwrap();
        assert!(
            here.starts_with("there is no file `/") && here.ends_with("/no-such-file`"),
            "{here}"
        );
    }
}

//! Commands that go on with a run.

use std::path::Path;

/// Returns the command that resumes a run.
pub fn resume_command(dir: &Path) -> String {
    format!("maverl train --resume {}", quoted(dir))
}

/// Returns the command that serves pages about a run.
pub fn view_command(dir: &Path) -> String {
    format!("maverl view {}", quoted(dir))
}

/// Quotes a path for a shell, if that is needed.
fn quoted(dir: &Path) -> String {
    let dir = dir.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=,:@".contains(c);
    match dir.chars().all(plain) {
        true => dir,
        false => format!("'{}'", dir.replace('\'', "'\\''")),
    }
}

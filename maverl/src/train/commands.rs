//! Commands that go on with a run.

use std::path::Path;

/// Returns the command that resumes a run.
pub fn resume_command(dir: &Path) -> String {
    format!("{} train --resume {}", program(), quoted(dir))
}

/// Returns the command that serves pages about a run.
pub fn view_command(dir: &Path) -> String {
    format!("{} view {}", program(), quoted(dir))
}

/// Returns the name of this program; `maverl` in examples and tests, whose teams are part of it.
fn program() -> String {
    let exe = std::env::current_exe().unwrap_or_default();
    let above = exe.parent().and_then(Path::file_name).unwrap_or_default();
    let name = exe.file_stem().unwrap_or_default().to_string_lossy();
    match name.is_empty() || above == "examples" || above == "deps" {
        true => "maverl".to_owned(),
        false => name.into_owned(),
    }
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

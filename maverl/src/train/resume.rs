//! The command that resumes a run.

use std::path::Path;

/// Returns the command that resumes a run.
pub fn resume_command(dir: &Path) -> String {
    let dir = dir.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=,:@".contains(c);
    match dir.chars().all(plain) {
        true => format!("maverl train --resume {dir}"),
        false => format!("maverl train --resume '{}'", dir.replace('\'', "'\\''")),
    }
}

//! Files of Python for tests.

use std::path::Path;
use std::process::{Command, Stdio};

/// Returns true if there is a Python; else prints that the test is skipped.
pub(crate) fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        println!("skipped: there is no `python3`");
    }
    found
}

/// Writes a file of Python into a new directory.
pub(crate) fn python_dir(name: &str, text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory for the test");
    write_python(dir.path(), name, text);
    dir
}

/// Writes a file of Python.
pub(crate) fn write_python(dir: &Path, name: &str, text: &str) {
    std::fs::write(dir.join(name), text).expect("the directory can be written");
}

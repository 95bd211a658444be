//! Python files of rewards: the file, its interpreter, and its function.

use std::path::Path;

use crate::config::source::missing::{self, WantedEntry};
use crate::config::source::{Problems, path, path_within, suggestion};
use crate::config::{Config, RewardPythonConfig};
use crate::python::{PythonFile, SourceError, python_sources};

/// Reports Python files of rewards that cannot be used. A file is parsed, and not run.
pub(crate) fn check_python_rewards(config: &Config, base: &Path, problems: &mut Problems<'_>) {
    for (name, reward) in &config.rewards {
        let Some(python) = &reward.python else { continue };
        let table = path(["rewards", name, "python"]);
        let function = python.function.as_deref().unwrap_or(name);
        let key = if python.function.is_some() { "function" } else { "file" };
        let RewardPythonConfig { file, watch, python, env, .. } = python.clone();
        let file = PythonFile { base: base.to_owned(), file, watch, python, env };
        check_python_file(&file, (function, key), &table, problems);
    }
}

/// Reports a Python file that cannot be used, or that has no definition `wanted`, which the key `key` names.
pub(crate) fn check_python_file(
    file: &PythonFile,
    (wanted, key): (&str, &str),
    table: &[String],
    problems: &mut Problems<'_>,
) {
    let given = Path::new(&file.file);
    let place = path_within(table, "file");
    if !file.base.join(given).is_file() {
        let message = missing::message(given, &file.base, WantedEntry::File);
        problems.value(&place, message, missing::help(given, &file.base, WantedEntry::File));
        return;
    }
    if let Err(error) = python_sources(&file.base, &file.file, &file.watch) {
        let help = "`*` stands for a part of a file's name, as in \"lib/*.py\"".to_owned();
        problems.value(&path_within(table, "watch"), error, help);
    }
    match file.definitions() {
        Ok(found) if found.unknown || found.names.iter().any(|name| name == wanted) => {}
        Ok(found) => {
            let message = format!("`{}` defines no `{wanted}`", file.file);
            let help = suggestion(wanted, found.names.iter().map(String::as_str));
            problems.value(&path_within(table, key), message, help);
        }
        Err(SourceError::Syntax(message)) => problems.value(&place, message, None),
        Err(SourceError::Interpreter(message)) => {
            let help = "write the path of a Python 3.9 or newer: `python = \".venv/bin/python\"`"
                .to_owned();
            problems.value(&path_within(table, "python"), message, help);
        }
    }
}

//! A Python file as it is: its interpreter, what it defines, and the hashes of all files that it depends on.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// Prints the top-level names of a file, or its syntax error, without running it.
const INSPECT: &str = r#"
import ast, json, sys
if sys.version_info < (3, 9):
    print(json.dumps({"old": "%d.%d" % sys.version_info[:2]}))
    sys.exit()
try:
    tree = ast.parse(open(sys.argv[1], "rb").read(), sys.argv[1])
except (SyntaxError, ValueError) as error:
    print(json.dumps({"wrong": getattr(error, "msg", str(error)), "line": getattr(error, "lineno", None) or 1}))
    sys.exit()
names, unknown = [], False
def collect(body):
    global unknown
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.append(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.extend((alias.asname or alias.name) for alias in node.names)
            unknown |= any(alias.name == "*" for alias in node.names)
        elif isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While)):
            unknown = True
        else:
            names.extend(name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store))
collect(tree.body)
print(json.dumps({"names": names, "unknown": unknown}))
"#;

/// Variables that every process gets, if they are set.
const INHERITED: [&str; 2] = ["PATH", "HOME"];

/// A Python file with its interpreter, as a configuration names them. Relative paths start from `base`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PythonFile {
    pub(crate) base: PathBuf,
    /// The file.
    pub(crate) file: String,
    /// Further files that it depends on; `*` stands for any part of a file's name.
    pub(crate) watch: Vec<String>,
    /// Program that runs it.
    pub(crate) python: String,
    /// Names of variables that are passed on.
    pub(crate) env: Vec<String>,
}

/// Top-level names of a file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Definitions {
    pub(crate) names: Vec<String>,
    /// True if there may be more names, as after `from x import *`.
    pub(crate) unknown: bool,
}

/// Reason that a file cannot be used.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SourceError {
    /// The interpreter cannot be run, or is too old.
    Interpreter(String),
    /// The file is no Python.
    Syntax(String),
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Interpreter(text) | Self::Syntax(text)) = self;
        f.write_str(text)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Inspected {
    Old { old: String },
    Wrong { wrong: String, line: u64 },
    Read(Definitions),
}

impl PythonFile {
    /// Returns the path of the file.
    pub(crate) fn path(&self) -> PathBuf {
        let path = self.base.join(&self.file);
        std::path::absolute(&path).unwrap_or(path)
    }

    /// Returns a message about the file that begins with its name.
    pub(crate) fn located(&self, message: &str) -> String {
        let separator = if message.starts_with("line ") { "," } else { ":" };
        format!("{}{separator} {message}", self.file)
    }

    /// Returns the top-level names of the file, which is parsed and not run.
    ///
    /// # Errors
    ///
    /// If the interpreter does not run, or the file has a syntax error.
    pub(crate) fn definitions(&self) -> Result<Definitions, SourceError> {
        let interpreter = |reason: &dyn fmt::Display| {
            SourceError::Interpreter(format!("`{}` does not run: {reason}", self.python))
        };
        let mut command = Command::new(self.interpreter());
        command.args(["-I", "-S", "-B", "-c", INSPECT]).arg(self.path()).stdin(Stdio::null());
        let output = command.output().map_err(|error| interpreter(&error))?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let inspected = serde_json::from_str(printed.trim()).map_err(|_| {
            let errors = String::from_utf8_lossy(&output.stderr);
            interpreter(&errors.trim_end().lines().last().unwrap_or("it prints nothing"))
        });
        match inspected? {
            Inspected::Read(found) => Ok(found),
            Inspected::Old { old } => Err(SourceError::Interpreter(format!(
                "`{}` is Python {old}; Python 3.9 or newer is needed",
                self.python
            ))),
            Inspected::Wrong { wrong, line } => {
                Err(SourceError::Syntax(format!("{}, line {line}: {wrong}", self.file)))
            }
        }
    }

    /// Returns a command that runs a program with the interpreter. Its environment has the named variables and no others.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.interpreter());
        command.args(["-u", "-s", "-B", "-c", program]).env_clear();
        for name in INHERITED.into_iter().chain(self.env.iter().map(String::as_str)) {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("PYTHONHASHSEED", "0").env("PYTHONIOENCODING", "utf-8:backslashreplace");
        if !self.base.as_os_str().is_empty() {
            command.current_dir(&self.base);
        }
        command
    }

    /// Returns the interpreter: a path is relative to `base`, a name is found by `PATH`.
    fn interpreter(&self) -> PathBuf {
        if !self.python.contains('/') {
            return PathBuf::from(&self.python);
        }
        let path = self.base.join(&self.python);
        std::path::absolute(&path).unwrap_or(path)
    }

    /// Returns the SHA-256 of each file that the values depend on, by its name.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or a pattern of `watch` names none.
    pub(crate) fn hashes(&self) -> Result<BTreeMap<String, String>, String> {
        let mut hashes = BTreeMap::new();
        for name in python_sources(&self.base, &self.file, &self.watch)? {
            let path = self.base.join(&name);
            let bytes = std::fs::read(&path)
                .map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
            let digest = Sha256::digest(&bytes);
            hashes.insert(name, digest.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        Ok(hashes)
    }
}

/// Returns the names of the files that values depend on: the file, and those that patterns of `watch` name, sorted.
///
/// # Errors
///
/// The first pattern that names no file.
pub(crate) fn python_sources(
    base: &Path,
    file: &str,
    watch: &[String],
) -> Result<Vec<String>, String> {
    let mut names = vec![file.to_owned()];
    for pattern in watch {
        let found = matching_files(base, pattern);
        if found.is_empty() {
            return Err(format!("`{pattern}` names no file"));
        }
        names.extend(found);
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// Returns the files of a pattern, whose last component may contain `*`.
fn matching_files(base: &Path, pattern: &str) -> Vec<String> {
    let (folder, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
    if !name.contains('*') {
        return base.join(pattern).is_file().then(|| pattern.to_owned()).into_iter().collect();
    }
    let directory = base.join(folder);
    let directory =
        if directory.as_os_str().is_empty() { Path::new(".") } else { directory.as_path() };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.path().is_file());
    let names = files.filter_map(|entry| entry.file_name().into_string().ok());
    let fits = names.filter(|found| matches_pattern(name, found));
    let within = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    fits.map(|found| within.clone() + &found).collect()
}

/// Returns true if a name is the pattern with each `*` replaced by some text.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == name };
    let Some(rest) = name.strip_prefix(before) else { return false };
    let mut ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    ends.any(|at| matches_pattern(after, &rest[at..]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_pattern_names_files_of_its_directory_also_of_the_current_one() {
        let watch = |pattern: &str| python_sources(Path::new(""), "a.py", &[pattern.to_owned()]);
        assert_eq!(watch("Car*.toml").unwrap(), ["Cargo.toml", "a.py"]);
        assert_eq!(watch("src/l*b*.rs").unwrap(), ["a.py", "src/lib.rs"]);
        assert_eq!(watch("src/lib.rs").unwrap(), ["a.py", "src/lib.rs"]);
        assert_eq!(watch("*.py").unwrap_err(), "`*.py` names no file");
        assert!(matches_pattern("*", "") && matches_pattern("a*c", "abc"));
        assert!(!matches_pattern("a*c", "ab") && !matches_pattern("a", "ab"));
    }
}

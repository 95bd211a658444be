//! Files of an episode: an overlay of written files over a read-only directory.
//!
//! Written files are kept in the episode's state and never touch the disk, so there is no path to escape to. Files of
//! the directory are opened beneath it by the system (`openat2` on Linux), whatever links say.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::FilesOptions;
use super::provider::{CallContext, CallFailure, ToolProvider, blocking, text, tool};
use super::state::State;
use crate::env::EnvError;
use crate::tools::{Call, Tool};

/// Maximum length of a path in bytes.
const PATH: usize = 200;
/// Maximum size of a file of the directory in bytes.
const LARGEST: u64 = 1 << 20;
/// Maximum number of listed files, and maximum depth of the listing.
const LISTED: usize = 200;
const DEEP: usize = 8;

/// The directory below, if there is one, and the limits of the overlay.
pub(super) struct Files {
    below: Option<Arc<Dir>>,
    max_bytes: usize,
    max_files: usize,
}

impl Files {
    pub(super) fn new(options: &FilesOptions, base: &Path) -> Result<Self, EnvError> {
        let FilesOptions { directory, max_bytes, max_files } = options;
        let below = if directory.is_empty() {
            None
        } else {
            Some(Arc::new(open_directory(&base.join(directory))?))
        };
        Ok(Self { below, max_bytes: *max_bytes, max_files: *max_files })
    }

    async fn list(&self, state: &State) -> Result<String, CallFailure> {
        let mut paths = BTreeSet::new();
        if let Some(below) = self.below.clone() {
            paths = blocking(move || {
                let mut paths = BTreeSet::new();
                walk(&below, "", DEEP, &mut paths);
                paths
            })
            .await?;
        }
        for (path, text) in &state.files {
            match text {
                Some(_) => paths.insert(path.clone()),
                None => paths.remove(path),
            };
        }
        let paths: Vec<String> = paths.into_iter().take(LISTED).collect();
        Ok(if paths.is_empty() { "(no files)".to_owned() } else { paths.join("\n") })
    }

    async fn read(&self, state: &State, path: String) -> Result<String, CallFailure> {
        match (state.files.get(&path), self.below.clone()) {
            (Some(Some(text)), _) => Ok(text.clone()),
            (Some(None), _) | (None, None) => Err(missing_file(&path).into()),
            (None, Some(below)) => Ok(blocking(move || below_file(&below, &path)).await??),
        }
    }

    async fn write(
        &self,
        state: &mut State,
        path: String,
        text: &str,
    ) -> Result<String, CallFailure> {
        self.room(state, &path, text)?;
        let files = state.files.iter().filter(|(_, text)| text.is_some());
        for other in files.map(|(other, _)| other) {
            if is_under(other, &path) {
                return Err(format!("`{path}` is a directory").into());
            }
            if is_under(&path, other) {
                return Err(format!("`{other}` is a file, not a directory").into());
            }
        }
        if let Some(below) = self.below.clone() {
            let at = path.clone();
            if blocking(move || below.metadata(&at).is_ok_and(|file| file.is_dir())).await? {
                return Err(format!("`{path}` is a directory").into());
            }
        }
        let wrote = format!("wrote {} characters to `{path}`", text.chars().count());
        state.files.insert(path, Some(text.to_owned()));
        Ok(wrote)
    }

    /// Checks that a file may be written within the limits.
    fn room(&self, state: &State, path: &str, text: &str) -> Result<(), CallFailure> {
        let others = state.files.iter().filter(|(other, _)| other.as_str() != path);
        let bytes =
            others.clone().map(|(path, text)| path.len() + text.as_ref().map_or(0, String::len));
        let bytes: usize = bytes.sum();
        if bytes + path.len() + text.len() > self.max_bytes {
            return Err(format!("files may have {} bytes in all", self.max_bytes).into());
        }
        if others.count() >= self.max_files {
            return Err(format!("no more than {} files may be changed", self.max_files).into());
        }
        Ok(())
    }

    async fn delete(&self, state: &mut State, path: String) -> Result<String, CallFailure> {
        self.read(state, path.clone()).await?;
        self.room(state, &path, "")?;
        let done = format!("deleted `{path}`");
        state.files.insert(path, None);
        Ok(done)
    }
}

impl ToolProvider for Files {
    fn tools(&self) -> Vec<Tool> {
        vec![
            tool("list_files", "The paths of all files.", text_fields(&[])),
            tool("read_file", "What a file says.", text_fields(&["path"])),
            tool("write_file", "Makes a file of a text.", text_fields(&["path", "text"])),
            tool("delete_file", "Removes a file.", text_fields(&["path"])),
        ]
    }

    fn call<'a>(
        &'a self,
        episode: CallContext<'a>,
        call: Call,
    ) -> BoxFuture<'a, Result<String, CallFailure>> {
        Box::pin(async move {
            let state = episode.state;
            if call.name == "list_files" {
                return self.list(state).await;
            }
            let path = clean(text(&call, "path"))?;
            match call.name.as_str() {
                "read_file" => self.read(state, path).await,
                "write_file" => self.write(state, path, text(&call, "text")).await,
                _ => self.delete(state, path).await,
            }
        })
    }
}

/// Returns the parameters of a tool with these arguments, texts.
fn text_fields(names: &[&str]) -> Value {
    let properties = names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"})));
    let properties: Map<String, Value> = properties.collect();
    json!({"type": "object", "properties": properties, "required": names, "additionalProperties": false})
}

fn open_directory(path: &Path) -> Result<Dir, EnvError> {
    Dir::open_ambient_dir(path, ambient_authority()).map_err(|error| {
        EnvError(format!("`files.directory`: `{}` cannot be opened: {error}", path.display()))
    })
}

fn is_under(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

/// Checks that a path is normalized and can be used in calls.
pub(super) fn check_clean(path: &str, key: &str) -> Result<(), String> {
    match clean(path) {
        Ok(cleaned) if cleaned == path => Ok(()),
        Ok(cleaned) => Err(format!("`{key}` has {path:?}; write {cleaned:?}")),
        Err(what) => Err(format!("`{key}`: {what}")),
    }
}

/// Normalizes a path: relative, with parts joined by `/`, none of them `.` or `..`.
pub(super) fn clean(path: &str) -> Result<String, String> {
    let parts: Vec<&str> = path.split('/').filter(|part| *part != ".").collect();
    if path.len() > PATH || parts.is_empty() || !parts.iter().all(|part| is_file_name(part)) {
        let shown: String = path.chars().take(60).collect();
        return Err(format!("`{shown}` is no path of a file here; write one like notes/today.txt"));
    }
    Ok(parts.join("/"))
}

fn is_file_name(part: &str) -> bool {
    let is_odd = part.contains(|c: char| c.is_control() || c == '\\' || c == ':');
    !part.is_empty() && part != ".." && !is_odd
}

fn missing_file(path: &str) -> String {
    format!("there is no file `{path}`")
}

/// Reads a file of the directory. A path that leaves the directory does not exist.
fn below_file(below: &Dir, path: &str) -> Result<String, String> {
    let file = below.metadata(path).map_err(|_| missing_file(path))?;
    // Reading a pipe or a device might never end.
    if !file.is_file() {
        return Err(missing_file(path));
    }
    if file.len() > LARGEST {
        return Err(format!("`{path}` is larger than {LARGEST} bytes"));
    }
    let mut bytes = Vec::new();
    let file = below.open(path).map_err(|_| missing_file(path))?;
    file.take(LARGEST).read_to_end(&mut bytes).map_err(|_| missing_file(path))?;
    String::from_utf8(bytes).map_err(|_| format!("`{path}` is no text"))
}

/// Adds the files of a directory. Links to directories are not followed.
fn walk(dir: &Dir, at: &str, deep: usize, paths: &mut BTreeSet<String>) {
    let Ok(entries) = dir.entries() else { return };
    let entries = entries
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.file_type().ok()?)));
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    for (name, kind) in entries {
        if paths.len() >= LISTED {
            return;
        }
        let path = format!("{at}{name}");
        if kind.is_dir() && deep > 0 {
            if let Ok(inner) = dir.open_dir(&name) {
                walk(&inner, &format!("{path}/"), deep - 1, paths);
            }
        } else if kind.is_file() {
            paths.insert(path);
        }
    }
}

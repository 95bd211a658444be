//! Sources of a configuration: the layers, merged by figment, and the text of every key.

mod written;
mod yaml;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use figment::value::{Dict, Map, Tag, Value};
use figment::{Figment, Metadata, Profile, Provider};
use toml_edit::{ImDocument, Item, TableLike};

use super::file;

/// Environment variables that begin like keys and are none.
const RESERVED: &[&str] = &["MAVERL_FUZZ_CASES", "MAVERL_SIMD", "MAVERL_TEST_DATA"];

/// Sources of a configuration. Later fields override earlier ones.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Configuration file, if any.
    pub file: Option<File>,
    /// Environment variables; those that start with `MAVERL_` are keys (`MAVERL_RUNTIME__THREADS=2`).
    pub env: Vec<(String, String)>,
    /// Assignments of `--set key=value`.
    pub set: Vec<String>,
}

/// A configuration file.
#[derive(Debug, Clone)]
pub enum File {
    /// A file on disk; relative paths in it are relative to its directory.
    Path(PathBuf),
    /// A text that is already read, or embedded.
    Text {
        /// Name in messages.
        name: String,
        /// Content of the file.
        text: String,
        /// Directory that relative paths in it are relative to.
        base: PathBuf,
    },
}

impl Sources {
    /// Returns the file at a path and this process's environment.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self { file: Some(File::Path(path.into())), ..Self::environment() }
    }

    /// Returns this process's environment alone.
    pub fn environment() -> Self {
        let env = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self { env, ..Self::default() }
    }

    /// Returns a configuration that is already read, or embedded; relative paths in it are relative to `base`.
    #[must_use]
    pub fn text(
        mut self,
        name: impl Into<String>,
        text: impl Into<String>,
        base: impl Into<PathBuf>,
    ) -> Self {
        self.file = Some(File::Text { name: name.into(), text: text.into(), base: base.into() });
        self
    }

    /// Adds `key=value`, as `--set` does.
    #[must_use]
    pub fn with(mut self, assignment: impl Into<String>) -> Self {
        self.set.push(assignment.into());
        self
    }

    /// Returns the directory that relative paths are relative to, for a configuration with this `base`.
    pub(super) fn base(&self, base: Option<&str>) -> PathBuf {
        let own = match &self.file {
            Some(File::Path(path)) => path.parent().map(Path::to_path_buf).unwrap_or_default(),
            Some(File::Text { base, .. }) => base.clone(),
            None => PathBuf::new(),
        };
        let Some(base) = base else { return own };
        let dir = own.join(base);
        // If the directory does not exist, a missing file in it is reported instead.
        dir.canonicalize().unwrap_or(dir)
    }
}

/// One source of values, with its text.
#[derive(Debug)]
pub(super) struct Layer {
    /// Name in messages.
    pub(super) name: String,
    /// Text of the source.
    pub(super) text: Arc<str>,
    content: Content,
}

#[derive(Debug)]
enum Content {
    File(ImDocument<String>),
    Yaml(yaml::Node),
    Assignment {
        path: Vec<String>,
        key: Range<usize>,
        value: Range<usize>,
        parsed: Value,
    },
    /// The source could not be read.
    Nothing,
}

/// Error of reading a source.
pub(super) struct Unreadable {
    /// Index of its layer.
    pub(super) layer: usize,
    /// Place in its text.
    pub(super) span: Option<Range<usize>>,
    /// Description of the problem.
    pub(super) message: String,
    /// Remedy.
    pub(super) help: Option<String>,
}

/// Position of a key and its value in a layer's text.
pub(super) struct KeyPosition {
    /// Index of the layer.
    pub(super) layer: usize,
    /// Span of the key.
    pub(super) key: Range<usize>,
    /// Span of the value; that of the key for a table with a header.
    pub(super) value: Range<usize>,
}

/// All layers and their merged values.
pub(super) struct Layers {
    layers: Vec<Layer>,
    figment: Figment,
    merged: Value,
}

impl Layers {
    /// Reads every source; an unreadable one has no values.
    pub(super) fn read(sources: &Sources) -> (Self, Vec<Unreadable>) {
        let mut unreadable = Vec::new();
        let mut layers = Vec::new();
        let mut add = |(layer, problem): (Layer, Option<Problem>)| {
            if let Some((span, message, help)) = problem {
                unreadable.push(Unreadable { layer: layers.len(), span, message, help });
            }
            layers.push(layer);
        };
        if let Some(file) = &sources.file {
            add(read_file(file));
        }
        let mut env: Vec<&(String, String)> =
            sources.env.iter().filter(|(name, _)| is_key(name)).collect();
        env.sort();
        for (name, value) in env {
            add(read_variable(name, value));
        }
        for assignment in &sources.set {
            add(read_assignment(assignment));
        }
        let figment = (0..layers.len())
            .fold(Figment::new(), |figment, index| figment.merge(Numbered(index, &layers[index])));
        let merged = figment.find_value("").unwrap_or_else(|_| Dict::new().into());
        (Self { layers, figment, merged }, unreadable)
    }

    pub(super) fn layer(&self, index: usize) -> &Layer {
        &self.layers[index]
    }

    /// Returns the merged values of all layers; later layers override earlier ones.
    pub(super) fn merged(&self) -> &Value {
        &self.merged
    }

    /// Returns true if any layer has a value for a key.
    pub(super) fn has(&self, path: &[String]) -> bool {
        find(&self.merged, path).1 == path.len()
    }

    /// Returns the position of a key's value, or else that of the innermost table around it.
    pub(super) fn place(&self, path: &[String]) -> Option<KeyPosition> {
        let (value, depth) = find(&self.merged, path);
        let layer = self.index(value.tag())?;
        let path = &path[..depth];
        let (key, value) = match &self.layers[layer].content {
            Content::File(document) => spans(document.as_table(), path)?,
            Content::Yaml(node) => node.spans(path)?,
            Content::Assignment { path: assigned, key, value, .. } => {
                if path.is_empty() || assigned.is_empty() {
                    return None;
                }
                (key.clone(), value.clone())
            }
            Content::Nothing => return None,
        };
        Some(KeyPosition { layer, key, value })
    }

    fn index(&self, tag: Tag) -> Option<usize> {
        self.figment.get_metadata(tag)?.name.parse().ok()
    }
}

/// Returns the innermost value on a path, and the number of keys that lead to it.
fn find<'v>(value: &'v Value, path: &[String]) -> (&'v Value, usize) {
    let mut found = (value, 0);
    for key in path {
        match found.0.as_dict().and_then(|dict| dict.get(key)) {
            Some(inner) => found = (inner, found.1 + 1),
            None => break,
        }
    }
    found
}

/// Returns the spans of key and value of the innermost item on a path.
fn spans(table: &dyn TableLike, path: &[String]) -> Option<(Range<usize>, Range<usize>)> {
    let (first, rest) = path.split_first()?;
    let (key, item) = table.get_key_value(first)?;
    if let Some(inner) = item.as_table_like().and_then(|table| spans(table, rest)) {
        return Some(inner);
    }
    let key = key.span()?;
    let value = match item {
        Item::Value(value) => value.span(),
        Item::None | Item::Table(_) | Item::ArrayOfTables(_) => None,
    };
    Some((key.clone(), value.unwrap_or(key)))
}

/// A layer with the index that its values are tagged with.
struct Numbered<'l>(usize, &'l Layer);

impl Provider for Numbered<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.0.to_string())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let dict = match &self.1.content {
            Content::File(document) => table_value(document.as_table()),
            Content::Yaml(node) => node.dict(),
            Content::Assignment { path, parsed, .. } => nested(path, parsed.clone()),
            Content::Nothing => Dict::new(),
        };
        Ok(Profile::Default.collect(dict))
    }
}

fn nested(path: &[String], value: Value) -> Dict {
    let Some((last, tables)) = path.split_last() else { return Dict::new() };
    let innermost = Dict::from([(last.clone(), value)]);
    tables.iter().rev().fold(innermost, |inner, key| Dict::from([(key.clone(), inner.into())]))
}

fn table_value(table: &dyn TableLike) -> Dict {
    table.iter().map(|(key, item)| (key.to_owned(), item_value(item))).collect()
}

fn item_value(item: &Item) -> Value {
    match item {
        Item::None => Dict::new().into(),
        Item::Value(value) => toml_value(value),
        Item::Table(table) => table_value(table).into(),
        Item::ArrayOfTables(tables) => {
            tables.iter().map(|table| table_value(table)).collect::<Vec<_>>().into()
        }
    }
}

fn toml_value(value: &toml_edit::Value) -> Value {
    use toml_edit::Value as Toml;
    match value {
        Toml::String(value) => value.value().clone().into(),
        Toml::Integer(value) => (*value.value()).into(),
        Toml::Float(value) => (*value.value()).into(),
        Toml::Boolean(value) => (*value.value()).into(),
        Toml::Datetime(value) => value.value().to_string().into(),
        Toml::Array(values) => values.iter().map(toml_value).collect::<Vec<_>>().into(),
        Toml::InlineTable(table) => table_value(table).into(),
    }
}

/// Place, message and help.
pub(super) type Problem = (Option<Range<usize>>, String, Option<String>);

fn read_file(file: &File) -> (Layer, Option<Problem>) {
    let unread = |name, text: String, problem| {
        (Layer { name, text: text.into(), content: Content::Nothing }, Some(problem))
    };
    let (name, text) = match file::text(file) {
        Ok(read) => read,
        Err((name, shown, problem)) => return unread(name, shown, problem),
    };
    let yaml = || yaml::parse(&name, &text).map(Content::Yaml);
    let toml = || file::parse(&name, &text).map(Content::File);
    let read = if file::is_yaml(&name) { yaml() } else { toml() };
    match read {
        Ok(content) => (Layer { name, text: text.into(), content }, None),
        Err(problem) => unread(name, text, problem),
    }
}

fn is_key(name: &str) -> bool {
    name.starts_with("MAVERL_") && !RESERVED.contains(&name)
}

fn read_variable(name: &str, value: &str) -> (Layer, Option<Problem>) {
    let path: Vec<String> =
        name["MAVERL_".len()..].to_lowercase().split("__").map(str::to_owned).collect();
    let text = format!("{name}={value}");
    assigned("environment", text, path, 0..name.len(), name.len() + 1)
}

fn read_assignment(text: &str) -> (Layer, Option<Problem>) {
    match split_assignment(text) {
        Some((path, equals)) => assigned("--set", text.to_owned(), path, 0..equals, equals + 1),
        None => {
            let help = match text.split_once('=') {
                Some(_) => "write `--set task.group_size=4`".to_owned(),
                None => format!("write `--set {text}=VALUE`, without spaces around `=`"),
            };
            let what = "`--set` is given something that is not `key=value`".to_owned();
            let problem = (Some(0..text.len()), what, Some(help));
            let layer =
                Layer { name: "--set".to_owned(), text: text.into(), content: Content::Nothing };
            (layer, Some(problem))
        }
    }
}

fn assigned(
    name: &str,
    text: String,
    path: Vec<String>,
    key: Range<usize>,
    start: usize,
) -> (Layer, Option<Problem>) {
    let value = start..text.len();
    let (content, problem) = match written_value(&text[value.clone()]) {
        Ok(parsed) => (Content::Assignment { path, key, value, parsed }, None),
        Err(message) => {
            let help = unquoted(&text);
            (Content::Nothing, Some((Some(value), message, help)))
        }
    };
    (Layer { name: name.to_owned(), text: text.into(), content }, problem)
}

/// Returns help for a value whose quotes a shell has removed.
fn unquoted(assignment: &str) -> Option<String> {
    let (_, value) = assignment.split_once('=')?;
    let bare = value.starts_with(['[', '{']) && !value.contains(['"', '\'']);
    (bare && value.contains(char::is_alphabetic)).then(|| {
        "a shell takes quotes away: put the whole in single ones, as in `--set 'sampling.stop=[\"</a>\"]'`".to_owned()
    })
}

/// Parses a value outside of a file: TOML, or else plain text.
fn written_value(text: &str) -> Result<Value, String> {
    match text.trim().parse::<toml_edit::Value>() {
        Ok(value) => Ok(toml_value(&value)),
        Err(error) if text.trim_start().starts_with(['"', '\'', '[', '{']) => {
            Err(format!("the value is not TOML: {}", error.message().trim().replace('\n', "; ")))
        }
        Err(_) => Ok(text.trim().into()),
    }
}

/// Returns the keys before the first `=` outside of quotes, and its position. Quotes are as in TOML; only dots separate
/// keys.
fn split_assignment(text: &str) -> Option<(Vec<String>, usize)> {
    let mut path = vec![String::new()];
    let mut quote = None;
    for (at, c) in text.char_indices() {
        let last = path.last_mut()?;
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '.') => path.push(String::new()),
            (None, '=') => {
                let path: Vec<String> = path.iter().map(|key| key.trim().to_owned()).collect();
                return path.iter().all(|key| !key.is_empty()).then_some((path, at));
            }
            _ => last.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_are_split_at_dots_and_the_first_equals_sign_outside_of_quotes() {
        let cases = [
            ("steps=3", Some(("steps", 5))),
            ("task.data=a=b.jsonl", Some(("task|data", 9))),
            (
                "agents.math/solver.sampling.temperature=0.5",
                Some(("agents|math/solver|sampling|temperature", 39)),
            ),
            ("models.\"qwen2.5\".path=x", Some(("models|qwen2.5|path", 21))),
            ("agents.'a=b'.model = \"m\"", Some(("agents|a=b|model", 19))),
            ("steps", None),
            (".steps=3", None),
        ];
        for (text, expected) in cases {
            let expected =
                expected.map(|(path, at)| (path.split('|').map(str::to_owned).collect(), at));
            assert_eq!(split_assignment(text), expected, "{text}");
        }
    }
}

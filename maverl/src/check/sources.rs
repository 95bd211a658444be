//! Sources of a configuration: the layers, merged by figment, and the text of every key.

mod assignment;
mod written;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use figment::value::{Dict, Map, Tag, Value};
use figment::{Figment, Metadata, Profile, Provider};
use toml_edit::{ImDocument, Item, TableLike};

use super::excerpt::SourceText;
use super::{file, tagged};
use crate::IntoMap;
use assignment::{is_key, read_assignment, read_variable};

/// Sources of a configuration. Later fields override earlier ones.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Configuration file, if any.
    pub file: Option<File>,
    /// Environment variables; those that start with `MAVERL_` are keys (`MAVERL_RUNTIME__THREADS=2`).
    pub env: Vec<(String, String)>,
    /// Assignments of `--set key=value`.
    pub set: Vec<String>,
    /// Verifiers that earlier stages of a file of stages will write, by the names of the stages, with the keys of the questions
    /// that each is trained on. A reward names one as `stage:NAME`.
    pub verifiers: BTreeMap<String, BTreeSet<String>>,
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
    /// Name and text.
    pub(super) source: Arc<SourceText>,
    content: Content,
}

impl Layer {
    fn new(name: String, text: String, content: Content) -> Self {
        Self { source: Arc::new(SourceText::new(name, text)), content }
    }
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
    verifiers: BTreeMap<String, BTreeSet<String>>,
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
        let figment = (0..layers.len()).fold(Figment::new(), |figment, index| {
            let before = figment.find_value("").unwrap_or_else(|_| Dict::new().into());
            figment.merge(Numbered(index, &layers[index], &before))
        });
        let merged = figment.find_value("").unwrap_or_else(|_| Dict::new().into());
        let verifiers = sources.verifiers.clone();
        (Self { layers, figment, merged, verifiers }, unreadable)
    }

    /// Returns the verifiers of earlier stages; see [`Sources::verifiers`].
    pub(super) fn verifiers(&self) -> &BTreeMap<String, BTreeSet<String>> {
        &self.verifiers
    }

    pub(super) fn layer(&self, index: usize) -> &Layer {
        &self.layers[index]
    }

    /// Returns the merged values of all layers; later layers override earlier ones.
    pub(super) fn merged(&self) -> &Value {
        &self.merged
    }

    /// Returns the merged value at a path.
    pub(super) fn value(&self, path: &[String]) -> Option<&Value> {
        let (value, depth) = find(&self.merged, path);
        (depth == path.len()).then_some(value)
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

/// Returns the innermost value on a path, and the number of keys (of a list, indices) that lead to it.
pub(super) fn find<'v>(value: &'v Value, path: &[String]) -> (&'v Value, usize) {
    let mut found = (value, 0);
    for key in path {
        let inner = match found.0 {
            Value::Dict(_, dict) => dict.get(key),
            Value::Array(_, items) => key.parse::<usize>().ok().and_then(|i| items.get(i)),
            _ => None,
        };
        match inner {
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
    if let Some(inner) = within_item(item, rest) {
        return Some(inner);
    }
    let key = key.span()?;
    let value = match item {
        Item::Value(value) => value.span(),
        Item::None | Item::Table(_) | Item::ArrayOfTables(_) => None,
    };
    Some((key.clone(), value.unwrap_or(key)))
}

/// Returns the spans of key and value of the innermost item on a path in a table, or in a list of tables.
fn within_item(item: &Item, path: &[String]) -> Option<(Range<usize>, Range<usize>)> {
    if let Some(table) = item.as_table_like() {
        return spans(table, path);
    }
    let (index, path) = path.split_first()?;
    let index: usize = index.parse().ok()?;
    match item {
        Item::ArrayOfTables(tables) => spans(tables.get(index)?, path),
        Item::Value(toml_edit::Value::Array(items)) => {
            spans(items.get(index)?.as_inline_table()?, path)
        }
        _ => None,
    }
}

/// A layer with the index that its values are tagged with, and the merged values of the layers before it.
struct Numbered<'l>(usize, &'l Layer, &'l Value);

impl Provider for Numbered<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.0.to_string())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut dict = match &self.1.content {
            Content::File(document) => table_value(document.as_table()),
            Content::Yaml(node) => node.dict(),
            Content::Assignment { path, parsed, .. } => nested(path, parsed.clone()),
            Content::Nothing => Dict::new(),
        };
        tagged::keep_kinds(&mut dict, self.2, &mut Vec::new());
        Ok(Profile::Default.collect(dict))
    }
}

fn nested(path: &[String], value: Value) -> Dict {
    let Some((last, tables)) = path.split_last() else { return Dict::new() };
    let innermost = Dict::from([(last.clone(), value)]);
    tables.iter().rev().fold(innermost, |inner, key| Dict::from([(key.clone(), inner.into())]))
}

fn table_value(table: &dyn TableLike) -> Dict {
    table.iter().map(|(key, item)| (key.to_owned(), item_value(item))).into_map()
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
    let unread =
        |name, text: String, problem| (Layer::new(name, text, Content::Nothing), Some(problem));
    let (name, text) = match file::text(file) {
        Ok(read) => read,
        Err((name, shown, problem)) => return unread(name, shown, problem),
    };
    let yaml = || yaml::parse(&name, &text).map(Content::Yaml);
    let toml = || file::parse(&name, &text).map(Content::File);
    let read = if file::is_yaml(&name) { yaml() } else { toml() };
    match read {
        Ok(content) => (Layer::new(name, text, content), None),
        Err(problem) => unread(name, text, problem),
    }
}

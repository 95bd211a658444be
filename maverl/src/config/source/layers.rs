//! The layers of a configuration, merged by figment, and the position of every key in their texts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use figment::value::{Dict, Map, Tag, Value};
use figment::{Figment, Metadata, Profile, Provider};
use toml_edit::{Item, TableLike};

use super::assignment::{is_key, read_assignment, read_variable};
use super::file::read_file;
use super::kinds::{find, keep_kinds};
use super::layer::{LayerContent, SourceLayer, Unreadable};
use super::sources::Sources;
use super::toml_value::table_value;

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
pub(crate) struct ConfigLayers {
    layers: Vec<SourceLayer>,
    figment: Figment,
    merged: Value,
    verifiers: BTreeMap<String, BTreeSet<String>>,
}

impl ConfigLayers {
    /// Reads every source; an unreadable one has no values.
    pub(super) fn read(sources: &Sources) -> (Self, Vec<Unreadable>) {
        let mut unreadable = Vec::new();
        let mut layers = Vec::new();
        let mut env: Vec<&(String, String)> =
            sources.env.iter().filter(|(name, _)| is_key(name)).collect();
        env.sort();
        let file = sources.file.iter().map(read_file);
        let env = env.into_iter().map(|(name, value)| read_variable(name, value));
        let set = sources.set.iter().map(|assignment| read_assignment(assignment));
        for (layer, problem) in file.chain(env).chain(set) {
            if let Some((span, message, help)) = problem {
                unreadable.push(Unreadable { layer: layers.len(), span, message, help });
            }
            layers.push(layer);
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
    pub(crate) fn verifiers(&self) -> &BTreeMap<String, BTreeSet<String>> {
        &self.verifiers
    }

    /// Returns all layers, in the order in which they override each other.
    pub(super) fn all_layers(&self) -> &[SourceLayer] {
        &self.layers
    }

    pub(super) fn layer(&self, index: usize) -> &SourceLayer {
        &self.layers[index]
    }

    /// Returns the merged values of all layers; later layers override earlier ones.
    pub(crate) fn merged_values(&self) -> &Value {
        &self.merged
    }

    /// Returns the merged value at a path.
    pub(crate) fn value(&self, path: &[String]) -> Option<&Value> {
        let (value, depth) = find(&self.merged, path);
        (depth == path.len()).then_some(value)
    }

    /// Returns true if any layer has a value for a key.
    pub(crate) fn has(&self, path: &[String]) -> bool {
        find(&self.merged, path).1 == path.len()
    }

    /// Returns the position of a key's value, or else that of the innermost table around it.
    pub(super) fn place(&self, path: &[String]) -> Option<KeyPosition> {
        let (value, depth) = find(&self.merged, path);
        let layer = self.index(value.tag())?;
        let path = &path[..depth];
        let (key, value) = match &self.layers[layer].content {
            LayerContent::File(document) => spans(document.as_table(), path)?,
            LayerContent::Yaml(node) => node.spans(path)?,
            LayerContent::Assignment { path: assigned, key, value, .. } => {
                if path.is_empty() || assigned.is_empty() {
                    return None;
                }
                (key.clone(), value.clone())
            }
            LayerContent::Nothing => return None,
        };
        Some(KeyPosition { layer, key, value })
    }

    fn index(&self, tag: Tag) -> Option<usize> {
        self.figment.get_metadata(tag)?.name.parse().ok()
    }
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
struct Numbered<'l>(usize, &'l SourceLayer, &'l Value);

impl Provider for Numbered<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.0.to_string())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut dict = match &self.1.content {
            LayerContent::File(document) => table_value(document.as_table()),
            LayerContent::Yaml(node) => node.dict(),
            LayerContent::Assignment { path, parsed, .. } => nested_dict(path, parsed.clone()),
            LayerContent::Nothing => Dict::new(),
        };
        keep_kinds(&mut dict, self.2, &mut Vec::new());
        Ok(Profile::Default.collect(dict))
    }
}

fn nested_dict(path: &[String], value: Value) -> Dict {
    let Some((last, tables)) = path.split_last() else { return Dict::new() };
    let innermost = Dict::from([(last.clone(), value)]);
    tables.iter().rev().fold(innermost, |inner, key| Dict::from([(key.clone(), inner.into())]))
}

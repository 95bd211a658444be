//! Configuration files with the values of the environment and `--set` merged into their text.

use std::path::Path;

use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use super::layer::LayerContent;
use super::layers::ConfigLayers;
use super::sources::{File, Sources};
use crate::config::tables::tagged_table;

impl Sources {
    /// Returns the file with the environment and `--set` merged into it, an equivalent configuration by itself.
    /// Comments and order are kept (of a file in YAML, the order), and the merged values are listed at the top. `None` if a source cannot be read,
    /// which [`crate::check()`] reports.
    pub fn merged_file(&self) -> Option<String> {
        let (layers, unreadable) = ConfigLayers::read(self);
        if !unreadable.is_empty() {
            return None;
        }
        let mut document = DocumentMut::new();
        let mut given = String::new();
        for layer in layers.all_layers() {
            match &layer.content {
                LayerContent::File(_) => document = layer.source.text.parse().ok()?,
                LayerContent::Yaml(node) => document = node.document(),
                LayerContent::Assignment { path, value, .. } => {
                    set(
                        document.as_table_mut(),
                        (path, 0),
                        value_of(&layer.source.text[value.clone()]),
                    );
                    let text = layer.source.text.replace('\n', "\n#     ");
                    given += &format!("#   {} {text}\n", layer.source.name);
                }
                LayerContent::Nothing => return None,
            }
        }
        let header = if given.is_empty() {
            String::new()
        } else {
            format!("# Given beside the file, and written into it:\n{given}")
        };
        Some(header + &document.to_string())
    }
}

/// Returns the content of a file in TOML or YAML, or of a configuration that the program brings. `None` if it cannot be read,
/// which a check reports.
pub fn file_table(given: &Path) -> Option<toml::Table> {
    let file = File::named_file(given.to_owned());
    Sources { file: Some(file), ..Sources::default() }.merged_file()?.parse().ok()
}

/// Parses a value outside of a file: TOML, or else plain text.
fn value_of(text: &str) -> Value {
    text.trim().parse().unwrap_or_else(|_| Value::from(text.trim()))
}

/// Sets the key of a path, whose first `depth` keys lead to the table. Missing tables on the path are created; other values on it are
/// replaced, and a kind that stands alone becomes the kind of its table.
fn set(table: &mut dyn TableLike, (path, depth): (&[String], usize), value: Value) {
    let Some(key) = path.get(depth) else { return };
    let here = &path[..=depth];
    if here.len() == path.len() {
        return put_in_table(table, here, value);
    }
    if !table.get(key).is_some_and(Item::is_table_like) {
        let mut inner = Table::new();
        match lone_kind(table, here) {
            Some(kind) => drop(inner.insert("kind", Item::Value(kind.into()))),
            // A table of tables needs no header of its own.
            None => inner.set_implicit(true),
        }
        table.insert(key, Item::Table(inner));
    }
    if let Some(inner) = table.get_mut(key).and_then(Item::as_table_like_mut) {
        set(inner, (path, depth + 1), value);
    }
}

/// Returns the kind that stands in place of the table at a path, as in `shaping = "margin"`.
fn lone_kind(table: &dyn TableLike, path: &[String]) -> Option<String> {
    let there = table.get(path.last()?)?.as_str()?;
    tagged_table(path).map(|_| there.to_owned())
}

/// Replaces the value at a path, whose last key is of the table. Tables are merged, as layers are.
fn put_in_table(table: &mut dyn TableLike, path: &[String], value: Value) {
    let Some(key) = path.last() else { return };
    let kind = lone_kind(table, path);
    match (table.get_mut(key), value) {
        (Some(there), Value::InlineTable(values)) if there.is_table_like() => {
            let Some(inner) = there.as_table_like_mut() else { return };
            for (key, value) in values {
                put_in_table(inner, &[path, &[key.to_string()]].concat(), value);
            }
        }
        // Replaced in place, which keeps the comments around it: inserting formats the key anew.
        (Some(Item::Value(there)), mut value) => {
            if let (Some(kind), Some(values)) = (kind, value.as_inline_table_mut())
                && !values.contains_key("kind")
            {
                values.insert("kind", kind.into());
            }
            *value.decor_mut() = there.decor().clone();
            *there = value;
        }
        (_, value) => {
            table.insert(key, Item::Value(value));
        }
    }
}

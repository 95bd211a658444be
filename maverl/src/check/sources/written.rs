//! A configuration with everything that was given beside its file written into it.

use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use super::{Content, Layers, Sources};

impl Sources {
    /// The file with the environment and `--set` written into it: a configuration that means the same by itself. Comments
    /// and order stay (of a file in YAML, the order), and what was given beside the file is listed at the top. `None` if a source cannot be read, which
    /// [`crate::check()`] reports.
    pub fn written(&self) -> Option<String> {
        let (Layers { layers, .. }, unreadable) = Layers::read(self);
        if !unreadable.is_empty() {
            return None;
        }
        let mut document = DocumentMut::new();
        let mut given = String::new();
        for layer in &layers {
            match &layer.content {
                Content::File(_) => document = layer.text.parse().ok()?,
                Content::Yaml(node) => document = node.document(),
                Content::Assignment { path, value, .. } => {
                    set(document.as_table_mut(), path, value_of(&layer.text[value.clone()]));
                    let text = layer.text.replace('\n', "\n#     ");
                    given += &format!("#   {} {text}\n", layer.name);
                }
                Content::Nothing => return None,
            }
        }
        let header = match given.is_empty() {
            true => String::new(),
            false => format!("# Given beside the file, and written into it:\n{given}"),
        };
        Some(header + &document.to_string())
    }
}

/// A value outside of a file: TOML, or else a bare text.
fn value_of(text: &str) -> Value {
    text.trim().parse().unwrap_or_else(|_| Value::from(text.trim()))
}

/// Sets a key. Tables on the way to it that are not there are made; what is there and is no table is replaced.
fn set(table: &mut dyn TableLike, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        return put(table, first, value);
    }
    if !table.get(first).is_some_and(Item::is_table_like) {
        let mut inner = Table::new();
        // A table of tables needs no header of its own.
        inner.set_implicit(true);
        table.insert(first, Item::Table(inner));
    }
    if let Some(inner) = table.get_mut(first).and_then(Item::as_table_like_mut) {
        set(inner, rest, value);
    }
}

/// Puts a value in the place of what is there. Tables are merged, as layers are.
fn put(table: &mut dyn TableLike, key: &str, value: Value) {
    match (table.get_mut(key), value) {
        (Some(there), Value::InlineTable(values)) if there.is_table_like() => {
            let Some(inner) = there.as_table_like_mut() else { return };
            for (key, value) in values {
                put(inner, &key, value);
            }
        }
        // In place, so that the comments around it stay: inserting formats the key anew.
        (Some(Item::Value(there)), mut value) => {
            *value.decor_mut() = there.decor().clone();
            *there = value;
        }
        (_, value) => {
            table.insert(key, Item::Value(value));
        }
    }
}

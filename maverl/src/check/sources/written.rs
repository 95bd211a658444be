//! A configuration with everything that was given beside its file written into it.

use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use super::{Content, Layers, Sources};

impl Sources {
    /// The file with the environment and `--set` written into it: a configuration that means the same by itself. Comments
    /// and order stay, and what was given beside the file is listed at the top. `None` if a source cannot be read, which
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
    let inner = table.get_mut(key).and_then(Item::as_table_like_mut);
    match (inner, value) {
        (Some(inner), Value::InlineTable(values)) => {
            for (key, value) in values {
                put(inner, &key, value);
            }
        }
        (_, mut value) => {
            let decor = match table.get(key) {
                Some(Item::Value(there)) => there.decor().clone(),
                _ => Default::default(),
            };
            *value.decor_mut() = decor;
            table.insert(key, Item::Value(value));
        }
    }
}

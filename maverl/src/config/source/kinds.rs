//! Paths of values, and kinds of the tables on them.

use figment::value::{Dict, Value};

use crate::config::tables::{self, TaggedTable};

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

/// The table with a `kind` that a key is in, and the rest of its path; none for the `kind` itself. The path has no indices.
pub(super) fn tagged_table(path: &[String]) -> Option<(&'static TaggedTable, &[String])> {
    if path.last().is_some_and(|key| key == "kind") {
        return None;
    }
    (1..path.len()).find_map(|end| Some((tables::tagged_table(&path[..end])?, &path[end..])))
}

/// Adds the kind that an earlier layer names alone, as `shaping = "margin"` does, to a table of this layer without one:
/// otherwise the table would replace the name.
pub(super) fn keep_kinds(dict: &mut Dict, before: &Value, path: &mut Vec<String>) {
    for (key, value) in dict {
        let Value::Dict(_, inner) = value else { continue };
        path.push(key.clone());
        match find(before, path) {
            (Value::String(_, kind), depth)
                if depth == path.len() && tables::tagged_table(path).is_some() =>
            {
                inner.entry("kind".to_owned()).or_insert_with(|| kind.clone().into());
            }
            _ => keep_kinds(inner, before, path),
        }
        path.pop();
    }
}

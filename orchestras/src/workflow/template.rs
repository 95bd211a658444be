//! Templates: text with `{{ names }}`.

use std::collections::BTreeMap;

/// Splits a template into pieces: text, then the name of the placeholder after it, if any. Returns the text after an
/// unclosed `{{` as an error.
fn pieces(template: &str) -> Result<Vec<(&str, Option<&str>)>, &str> {
    let (mut rest, mut pieces) = (template, Vec::new());
    while let Some((text, after)) = rest.split_once("{{") {
        let (name, left) = after.split_once("}}").ok_or(after)?;
        pieces.push((text, Some(name.trim())));
        rest = left;
    }
    pieces.push((rest, None));
    Ok(pieces)
}

/// Returns the names in a template, or the text after an unclosed `{{`.
pub(super) fn names(template: &str) -> Result<Vec<&str>, &str> {
    Ok(pieces(template)?.into_iter().filter_map(|(_, name)| name).collect())
}

/// Fills in the placeholders of a template. Inserted text is not expanded again.
pub(super) fn fill(template: &str, values: &BTreeMap<String, String>) -> String {
    let mut filled = String::new();
    for (text, name) in pieces(template).unwrap_or_default() {
        filled.push_str(text);
        filled.push_str(name.and_then(|name| values.get(name)).map_or("", String::as_str));
    }
    filled
}

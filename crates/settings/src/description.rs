//! Descriptions of keys: what the JSON Schema, the reference and `maverl explain` print about them.

use serde_json::{Map, Value, json};

use super::{Key, Range};

/// Width of a key with its value in the reference, after which its comment begins.
const CODE_WIDTH: usize = 35;

/// A key with its default.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Name in the table.
    pub name: String,
    /// Documentation; empty if there is none.
    pub doc: &'static str,
    /// `agent`, `policy`, `team` or `run`.
    pub level: &'static str,
    /// Default; null without one.
    pub default: Value,
    /// Numbers that are accepted, if not all of the type.
    pub range: Option<Range>,
    /// True for a table of settings.
    pub table: bool,
    /// Value that the reference shows for a key without a default, or for a table.
    pub example: Option<&'static str>,
}

impl Description {
    /// Returns the descriptions of the keys of a table, in their order, with their defaults (an object).
    pub fn of_keys(keys: &[Key], defaults: &Value) -> Vec<Self> {
        let defaults = keys.iter().map(|key| defaults.get(key.name).cloned().unwrap_or_default());
        keys.iter().zip(defaults).map(|(key, default)| Self::of_key(key, default)).collect()
    }

    /// Returns the descriptions of options, in the order of their defaults. Options without a key have no documentation.
    pub fn of_options(keys: &[Key], defaults: Value) -> Vec<Self> {
        let Value::Object(defaults) = defaults else { return Vec::new() };
        let mut described = Vec::new();
        for (name, default) in defaults {
            let key = keys.iter().find(|key| key.name == name);
            let key = key.copied().unwrap_or_else(|| Key::documented("", ""));
            described.push(Self { name, ..Self::of_key(&key, default) });
        }
        described
    }

    fn of_key(key: &Key, default: Value) -> Self {
        let Key { name, doc, level, range, table, example, .. } = *key;
        Self { name: name.to_owned(), doc, level, default, range, table, example }
    }

    /// Returns the first sentence of the documentation, without a capital and a full stop.
    pub fn meaning(&self) -> String {
        let paragraph = self.doc.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        let sentence = paragraph.split(". ").next().unwrap_or_default().trim_end_matches('.');
        let mut chars = sentence.chars();
        let (first, rest) = (chars.next(), chars.as_str());
        // A name with further capitals, as KL and AdamW, stays.
        let word = rest.split(' ').next().unwrap_or_default();
        match first.filter(|_| !word.contains(char::is_uppercase)) {
            Some(first) => first.to_lowercase().collect::<String>() + rest,
            None => sentence.to_owned(),
        }
    }

    /// Returns the type in words: the range of a number, else the type itself.
    pub fn type_words(&self, type_name: String) -> String {
        let is_number = type_name.contains("number") && !type_name.contains("list");
        match self.range.filter(|_| is_number) {
            Some(range) => range.words(false),
            None => type_name,
        }
    }

    /// Returns the line of the reference, with `mark` before a key that has a default, and `names` after the meaning. `None`
    /// for a key without default and example, which has no line.
    pub fn reference_line(&self, mark: &str, names: &str) -> Option<String> {
        let Self { name, level, default, .. } = self;
        let code = match self.example {
            Some(example) => format!("#{name} = {example}"),
            // A kind without keys is written by its name.
            None if default.is_null() || self.table && !default.is_string() => return None,
            None => format!("{mark}{name} = {}", in_toml(default)),
        };
        Some(format!("{code:<CODE_WIDTH$} # {level}: {}{names}", self.meaning()))
    }

    /// Adds documentation, default and range to a property of a JSON Schema.
    pub fn annotate(&self, property: &mut Map<String, Value>) {
        let text = format!("{} Level: {}.", self.doc, self.level);
        property.insert("description".to_owned(), text.into());
        if self.table {
            property.remove("default");
            return;
        }
        if !self.default.is_null() {
            property.insert("default".to_owned(), self.default.clone());
        }
        self.limit(property);
    }

    /// Adds the ends of the range to a property of a JSON Schema, or to each number of a pair.
    pub fn limit(&self, property: &mut Map<String, Value>) {
        let Some(range) = self.range else { return };
        match property.get_mut("prefixItems").and_then(Value::as_array_mut) {
            Some(items) => items
                .iter_mut()
                .filter_map(Value::as_object_mut)
                .for_each(|item| limit_number(item, range)),
            None => limit_number(property, range),
        }
    }
}

/// Adds the ends of a range.
fn limit_number(number: &mut Map<String, Value>, range: Range) {
    let from = (range.from, ["minimum", "exclusiveMinimum"]);
    for (bound, [included, excluded]) in [from, (range.to, ["maximum", "exclusiveMaximum"])] {
        let Some(bound) = bound else { continue };
        let name = if bound.included { included } else { excluded };
        let value = if range.whole { json!(bound.value as u64) } else { json!(bound.value) };
        number.insert(name.to_owned(), value);
    }
}

/// Formats a default as TOML.
fn in_toml(default: &Value) -> String {
    match default.as_array() {
        Some(items) => format!("[{}]", items.iter().map(in_toml).collect::<Vec<_>>().join(", ")),
        None => default.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bound;

    #[test]
    fn a_key_is_described_for_the_schema_the_reference_and_explanations() {
        let low = Bound { value: 0.0, included: true };
        let range = Some(Range { from: Some(low), to: None, whole: false });
        let doc = "Weight of the term. 0 omits it.";
        let keys = [Key { range, ..Key::documented("weight", doc) }];
        let described = Description::of_keys(&keys, &json!({ "weight": 0.5 })).remove(0);
        assert_eq!(described.meaning(), "weight of the term");
        assert_eq!(described.type_words("a number".to_owned()), "a finite number from 0");
        assert_eq!(described.type_words("a list of numbers".to_owned()), "a list of numbers");
        let line = described.reference_line("#", ": a, b");
        let expected = "#weight = 0.5                       # team: weight of the term: a, b";
        assert_eq!(line.as_deref(), Some(expected));
        let mut property = Map::new();
        described.annotate(&mut property);
        let expected = json!({
            "description": "Weight of the term. 0 omits it. Level: team.",
            "default": 0.5,
            "minimum": 0.0,
        });
        assert_eq!(Value::Object(property), expected);
    }

    #[test]
    fn an_option_without_a_key_has_no_documentation_and_no_line_without_a_default() {
        let options = Description::of_options(&[], json!({ "size": null }));
        assert_eq!((options[0].name.as_str(), options[0].doc), ("size", ""));
        assert_eq!(options[0].reference_line("", ""), None);
    }
}

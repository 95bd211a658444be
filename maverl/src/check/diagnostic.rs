//! Problems of a configuration, with their places in the user's text.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use super::alias::snake;
use super::excerpt::{Excerpt, Mark, SourceText};
use super::sources::{Layers, Unreadable};

/// One problem: message, places and help.
#[derive(Debug)]
pub struct Diagnostic {
    pub(super) message: String,
    pub(super) help: Option<String>,
    pub(super) source: Option<Arc<SourceText>>,
    marks: Vec<Mark>,
    key: Option<String>,
    order: (usize, usize),
}

/// JSON form: `message`, `help`, `key`, `source`, and `places` with `line`, `column`, `text` and `note`.
impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let source = self.source.as_deref();
        let spot = |(mark, note): &Mark| {
            let source = source?;
            let text = source.text.get(mark.start..mark.end.min(source.text.len()))?;
            let (line, column) = source.position(mark.start);
            Some(json!({ "line": line + 1, "column": column + 1, "text": text, "note": note }))
        };
        let places: Vec<Value> = self.marks.iter().filter_map(spot).collect();
        let mut map = serializer.serialize_map(Some(5))?;
        map.serialize_entry("message", &self.message)?;
        map.serialize_entry("help", &self.help)?;
        map.serialize_entry("key", &self.key)?;
        map.serialize_entry("source", &source.map(|source| &source.name))?;
        map.serialize_entry("places", &places)?;
        map.end()
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Diagnostic {}

impl Diagnostic {
    /// Returns the lines of the source with the places of the problem.
    pub(super) fn excerpt(&self) -> Option<Excerpt> {
        let source = self.source.as_deref().filter(|_| !self.marks.is_empty());
        source.map(|source| Excerpt::new(source, &self.marks))
    }
}

/// Formats a key path as in TOML: parts that are not bare keys are quoted.
pub(super) fn key(path: &[String]) -> String {
    let bare = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    let parts: Vec<String> = path
        .iter()
        .map(|part| if bare(part) { part.clone() } else { format!("{part:?}") })
        .collect();
    parts.join(".")
}

/// Returns `["agents", name]` as a path.
pub(super) fn path<const N: usize>(parts: [&str; N]) -> Vec<String> {
    parts.map(str::to_owned).to_vec()
}

/// Returns a path with one more part.
pub(super) fn within(path: &[String], part: &str) -> Vec<String> {
    [path, &[part.to_owned()]].concat()
}

/// Maximum number of names in a list of a message.
const LISTED: usize = 100;

/// Maximum length of a name that others are compared with. The time of a comparison grows with the product of the lengths.
const COMPARED: usize = 200;

/// Returns the known name closest to `found`, if it is close: few letters differ, the case differs, or `found` is its
/// last part. A very long name has none.
pub fn did_you_mean<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if found.len() > COMPARED {
        return None;
    }
    let plain = snake(found);
    let limit = (1 + found.len() / 4).min(found.len() / 2);
    known
        .into_iter()
        .filter(|name| name.len() <= COMPARED)
        .map(|name| {
            let part = name.rsplit('/').next();
            let role = part == Some(found) || part == Some(plain.as_str());
            let written = strsim::damerau_levenshtein(found, name);
            let distance = written.min(strsim::damerau_levenshtein(&plain, name));
            (if role { 0 } else { distance }, name)
        })
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Formats a list as `` `a`, `b` and `c` ``; of a long one, the first names and the number of the others.
pub(super) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names = names.into_iter();
    let mut named: Vec<String> =
        names.by_ref().take(LISTED).map(|name| format!("`{name}`")).collect();
    let more = names.count();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    match named.split_last() {
        None => "none".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, names)) => format!("{} and {last}", names.join(", ")),
    }
}

/// Returns help for an unknown name: the closest known one, or all.
pub(super) fn suggestion<'a>(
    found: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    match did_you_mean(found, known.clone()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("known: {}", list(known)),
    }
}

/// Underlined part of an entry.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Key,
    Value,
}

/// Collected problems. The first problem of a key hides later ones of it, but all conflicts are reported.
pub(super) struct Problems<'l> {
    layers: &'l Layers,
    found: Vec<Diagnostic>,
    keys: BTreeSet<Vec<String>>,
    gone: BTreeSet<Vec<String>>,
    /// Messages of the conflicts.
    conflicts: BTreeSet<String>,
}

impl<'l> Problems<'l> {
    pub(super) fn new(layers: &'l Layers) -> Self {
        let found = Vec::new();
        let (keys, gone, conflicts) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Self { layers, found, keys, gone, conflicts }
    }

    pub(super) fn layers(&self) -> &'l Layers {
        self.layers
    }

    /// Returns the text of a value; `None` if it is not in the sources.
    pub(super) fn written(&self, path: &[String]) -> Option<&'l str> {
        let place = self.layers.has(path).then(|| self.layers.place(path))??;
        self.layers.layer(place.layer).source.text.get(place.value)
    }

    /// Returns the name of the only model, if there is only one.
    pub(super) fn only_model(&self) -> Option<&'l str> {
        let models = self.layers.merged().find_ref("models").and_then(|models| models.as_dict())?;
        let mut names = models.keys();
        names.next().map(String::as_str).filter(|_| names.next().is_none())
    }

    /// Returns true if a key is already reported, or was removed with a table around it.
    pub(super) fn reported(&self, path: &[String]) -> bool {
        self.keys.contains(path) || (1..path.len()).any(|end| self.gone.contains(&path[..end]))
    }

    /// Marks a reported value as removed, so that its content is not reported.
    pub(super) fn gone(&mut self, path: &[String]) {
        self.gone.insert(path.to_vec());
    }

    /// Reports a source that could not be read.
    pub(super) fn unreadable(&mut self, problem: Unreadable) {
        let text = &self.layers.layer(problem.layer).source.text;
        // A problem at the end of a line is shown there, not on the next line.
        let ends =
            |span: &Range<usize>| text.get(span.clone()).is_none_or(|c| c == "\n" || c.is_empty());
        let before =
            |at: usize| text.get(..at)?.char_indices().next_back().map(|(start, _)| start..at);
        let span = problem.span.map(|span| match before(span.start) {
            Some(before) if ends(&span) => before,
            _ => span,
        });
        let labels = span.map(|span| (span, None)).into_iter().collect();
        self.push(Some(problem.layer), labels, problem.message, problem.help);
    }

    /// Reports a key.
    pub(super) fn key(
        &mut self,
        path: &[String],
        message: String,
        help: impl Into<Option<String>>,
    ) {
        self.one(path, Part::Key, message, help.into());
    }

    /// Reports the value of a key.
    pub(super) fn value(
        &mut self,
        path: &[String],
        message: String,
        help: impl Into<Option<String>>,
    ) {
        self.one(path, Part::Value, message, help.into());
    }

    /// Reports a value that conflicts with that of another key.
    pub(super) fn conflict(&mut self, path: &[String], message: String, help: String) {
        if !self.reported(path) && self.conflicts.insert(message.clone()) {
            self.place(path, Part::Value, message, Some(help));
        }
    }

    /// Reports values that conflict, each with a note.
    pub(super) fn values(
        &mut self,
        notes: &[(Vec<String>, String)],
        message: String,
        help: String,
    ) {
        if !self.conflicts.insert(message.clone()) {
            return;
        }
        let mut layer = None;
        let mut labels = Vec::new();
        for (path, note) in notes.iter().filter(|(path, _)| self.layers.has(path)) {
            let Some(place) = self.layers.place(path) else { continue };
            if *layer.get_or_insert(place.layer) == place.layer {
                labels.push((place.value, Some(note.clone())));
            }
        }
        self.push(layer, labels, message, Some(help));
    }

    /// Reports a problem without a key.
    pub(super) fn whole(&mut self, message: String, help: impl Into<Option<String>>) {
        self.push(None, Vec::new(), message, help.into());
    }

    fn one(&mut self, path: &[String], part: Part, message: String, help: Option<String>) {
        if self.reported(path) {
            return;
        }
        self.keys.insert(path.to_vec());
        self.place(path, part, message, help);
    }

    fn place(&mut self, path: &[String], part: Part, message: String, help: Option<String>) {
        self.placed(path, part, message, help);
        if let Some(last) = self.found.last_mut() {
            last.key = Some(key(path));
        }
    }

    fn placed(&mut self, path: &[String], part: Part, message: String, help: Option<String>) {
        match self.layers.place(path) {
            None => self.push(None, Vec::new(), message, help),
            Some(place) => {
                let span = match part {
                    Part::Key => place.key,
                    Part::Value => place.value,
                };
                self.push(Some(place.layer), vec![(span, None)], message, help);
            }
        }
    }

    fn push(
        &mut self,
        layer: Option<usize>,
        marks: Vec<Mark>,
        message: String,
        help: Option<String>,
    ) {
        let start = marks.iter().map(|(mark, _)| mark.start).min().unwrap_or(0);
        let source = layer.map(|index| Arc::clone(&self.layers.layer(index).source));
        let order = (layer.unwrap_or(usize::MAX), start);
        self.found.push(Diagnostic { message, help, source, marks, key: None, order });
    }

    /// Returns the value, or all problems in the order of the sources.
    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, Vec<Diagnostic>> {
        let mut found = self.found;
        found.sort_by_key(|diagnostic| diagnostic.order);
        match value {
            Some(value) if found.is_empty() => Ok(value),
            _ => {
                assert!(!found.is_empty(), "whatever stops the plan is reported");
                Err(found)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_close_to_a_known_one_is_suggested() {
        let known = ["steps", "seed", "search/verifier"];
        assert_eq!(did_you_mean("stpes", known), Some("steps"));
        assert_eq!(did_you_mean("verifier", known), Some("search/verifier"));
        assert_eq!(did_you_mean("search/verifer", known), Some("search/verifier"));
        assert_eq!(did_you_mean("temperature", known), None);
    }

    #[test]
    fn keys_are_written_as_in_toml() {
        assert_eq!(key(&path(["agents", "math/solver", "model"])), "agents.\"math/solver\".model");
    }
}

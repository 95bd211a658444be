//! A problem of a configuration, with its position in the user's text.

use std::fmt;
use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use super::excerpt::{Excerpt, ExcerptMark, SourceText};

/// One problem: message, places and help.
#[derive(Debug)]
pub struct Diagnostic {
    pub(super) message: String,
    pub(super) help: Option<String>,
    pub(crate) source: Option<Arc<SourceText>>,
    pub(super) marks: Vec<ExcerptMark>,
    pub(super) key: Option<String>,
    pub(super) order: (usize, usize),
}

/// JSON form: `message`, `help`, `key`, `source`, and `places` with `line`, `column`, `text` and `note`.
impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let source = self.source.as_deref();
        let places: Vec<Value> =
            self.marks.iter().filter_map(|mark| place_of(mark, source?)).collect();
        let mut map = serializer.serialize_map(Some(5))?;
        map.serialize_entry("message", &self.message)?;
        map.serialize_entry("help", &self.help)?;
        map.serialize_entry("key", &self.key)?;
        map.serialize_entry("source", &source.map(|source| &source.name))?;
        map.serialize_entry("places", &places)?;
        map.end()
    }
}

fn place_of((mark, note): &ExcerptMark, source: &SourceText) -> Option<Value> {
    let text = source.text.get(mark.start..mark.end.min(source.text.len()))?;
    let (line, column) = source.position(mark.start);
    Some(json!({ "line": line + 1, "column": column + 1, "text": text, "note": note }))
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

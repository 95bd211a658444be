//! Documents of a corpus.

use serde::{Deserialize, Serialize};

/// A document of a corpus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Unique in its corpus; breaks ties between equally good matches.
    pub key: String,
    /// May be empty.
    pub title: String,
    /// Text of the document.
    pub text: String,
}

impl Document {
    /// Creates a document whose title is the quoted first line of its contents, as in Search-R1's corpora.
    pub fn from_contents(key: impl Into<String>, contents: &str) -> Self {
        let (title, text) = contents.split_once('\n').unwrap_or(("", contents));
        Self {
            key: key.into(),
            title: title.trim().trim_matches('"').to_owned(),
            text: text.trim().to_owned(),
        }
    }

    /// Formats `(title) text` on one line.
    pub fn line(&self) -> String {
        let words = self.text.split_whitespace().collect::<Vec<_>>().join(" ");
        if self.title.is_empty() { words } else { format!("({}) {words}", self.title) }
    }
}

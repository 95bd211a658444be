//! Documents of a corpus.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// A document of a corpus.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Unique in its corpus; breaks ties between equally good matches.
    pub key: String,
    /// May be empty.
    pub title: String,
    /// Text of the document.
    pub text: String,
    /// The document in the form of Search-R1's corpora, if it was given in that form and is not the title in quotes, a line break and
    /// the text. See [`Document::contents`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<String>,
}

impl Document {
    /// Creates a document whose title is the quoted first line of its contents, as in Search-R1's corpora.
    pub fn from_contents(key: impl Into<String>, contents: &str) -> Self {
        let (title, text) = contents.split_once('\n').unwrap_or(("", contents));
        let text = text.trim().to_owned();
        let bare = Self { key: key.into(), title: unquoted(title), text, contents: None };
        bare.with_contents(contents)
    }

    /// Creates a document of a title and contents, which may repeat the title on their first line.
    pub fn from_titled_contents(key: impl Into<String>, title: String, contents: &str) -> Self {
        let (first, rest) = contents.split_once('\n').unwrap_or((contents, ""));
        let repeats = unquoted(first) == unquoted(&title);
        let text = if repeats { rest.trim() } else { contents }.to_owned();
        let title = if repeats { unquoted(first) } else { title };
        Self { key: key.into(), title, text, contents: None }.with_contents(contents)
    }

    /// Returns the document with these contents.
    pub(crate) fn with_contents(self, contents: &str) -> Self {
        let given = (*self.contents() != *contents).then(|| contents.to_owned());
        Self { contents: given, ..self }
    }

    /// Returns the document in the form of Search-R1's corpora: as it was given, or the title in quotes, a line break and the text.
    pub fn contents(&self) -> Cow<'_, str> {
        match &self.contents {
            Some(contents) => Cow::Borrowed(contents),
            None => Cow::Owned(format!("\"{}\"\n{}", self.title, self.text)),
        }
    }

    /// Formats `(title) text` on one line.
    pub fn line(&self) -> String {
        let words = self.text.split_whitespace().collect::<Vec<_>>().join(" ");
        if self.title.is_empty() { words } else { format!("({}) {words}", self.title) }
    }
}

/// Returns a line without blanks and quotes around it.
fn unquoted(line: &str) -> String {
    line.trim().trim_matches('"').to_owned()
}

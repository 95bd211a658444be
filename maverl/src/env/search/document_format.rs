//! Forms of documents in an observation.

use serde::{Deserialize, Serialize};

use crate::builtin::Document;

/// Form of the documents in an observation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DocumentFormat {
    /// A line for each document, `Doc 1: (title) text`. A query without letters and digits, and one without results, get a
    /// sentence that states this.
    #[default]
    Lines,
    /// Text of `_passages2string` of Search-R1 (`search_r1/llm_agent/generation.py`), without the blanks around it:
    /// `Doc 1(Title: first line) text` for each document, whose contents are as they were given. Every query is searched; a query without results gets an empty text.
    #[serde(rename = "search_r1")]
    SearchR1,
}

impl DocumentFormat {
    /// Formats the result of a query. Each document has at most `max_chars` characters, without a limit if that is 0.
    pub(super) fn show(self, documents: &[Document], max_chars: usize) -> String {
        if documents.is_empty() && self == Self::Lines {
            return "no document has any of these words".to_owned();
        }
        let texts = documents.iter().enumerate().map(|(i, document)| {
            let number = i + 1;
            match self {
                Self::Lines => {
                    format!("Doc {number}: {}", first_chars(&document.line(), max_chars))
                }
                Self::SearchR1 => {
                    let contents = document.contents();
                    let (title, text) =
                        contents.split_once('\n').unwrap_or((contents.as_ref(), ""));
                    format!("Doc {number}(Title: {title}) {}", first_chars(text, max_chars))
                }
            }
        });
        let text = texts.collect::<Vec<_>>().join("\n");
        if self == Self::SearchR1 { text.trim().to_owned() } else { text }
    }
}

/// Returns the first characters of a text; all if `max` is 0.
fn first_chars(text: &str, max: usize) -> &str {
    match text.char_indices().nth(max) {
        Some((end, _)) if max > 0 => &text[..end],
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_shown_as_search_r1_shows_them() {
        let document = Document::from_contents("7", "\"Evolution\"\nLife changes.\nSlowly.");
        let untitled = Document { key: "8".into(), text: "Two.".into(), ..Document::default() };
        let documents = [document, untitled];
        let shown = DocumentFormat::SearchR1.show(&documents, 0);
        let expected =
            "Doc 1(Title: \"Evolution\") Life changes.\nSlowly.\nDoc 2(Title: \"\") Two.";
        assert_eq!(shown, expected);
        let shown = DocumentFormat::SearchR1.show(&documents[..1], 4);
        assert_eq!(shown, "Doc 1(Title: \"Evolution\") Life");
        assert_eq!(DocumentFormat::SearchR1.show(&[], 0), "");
        // The title is the first line as it is, with what is around it.
        for (contents, expected) in [
            ("Evolution\n Life changes. ", "Doc 1(Title: Evolution)  Life changes."),
            ("Life changes.", "Doc 1(Title: Life changes.)"),
            (" \"A\" \n\nB", "Doc 1(Title:  \"A\" ) \nB"),
        ] {
            let document = Document::from_contents("7", contents);
            assert_eq!(DocumentFormat::SearchR1.show(&[document], 0), expected);
        }
        assert_eq!(DocumentFormat::Lines.show(&documents[..1], 15), "Doc 1: (Evolution) Lif");
    }
}

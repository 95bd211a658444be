//! JSON messages between Search-R1's clients and retrievers.

use std::io::{self, Write};

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::index::FoundDocument;
use crate::builtin::Document;

/// Default number of documents of a query.
const TOP_K: usize = 3;
/// Maximum number of documents of a query.
const MOST_DOCUMENTS: usize = 1000;
/// Maximum number of queries of a request.
const MOST_QUERIES: usize = 4096;
/// Maximum number of documents of a request over all queries; the search cost is proportional to it.
const MOST_HITS: usize = 1 << 16;
/// Maximum size of an answer in bytes.
pub const MOST_ANSWERED: usize = 16 << 20;

/// A request as serialized.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "queries")]
    queries: Option<Vec<String>>,
    /// A single query, in the form of Dr. MAS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    query: Option<String>,
    #[serde(default)]
    topk: Option<usize>,
    #[serde(default)]
    return_scores: bool,
}

/// A validated request.
#[derive(Debug, PartialEq)]
pub struct SearchRequest {
    pub queries: Vec<String>,
    pub k: usize,
    pub scores: bool,
}

impl Question {
    /// Creates a request for the best `k` documents for some queries, with their scores.
    pub(super) fn new(queries: Vec<String>, k: usize) -> Self {
        Self { queries: Some(queries), query: None, topk: Some(k), return_scores: true }
    }

    /// Creates a request in the form of Dr. MAS, with one query.
    pub(super) fn single(query: String, k: usize) -> Self {
        Self { queries: None, query: Some(query), topk: Some(k), return_scores: true }
    }

    /// Reads a request.
    ///
    /// # Errors
    ///
    /// The problem with the request.
    pub fn read(body: &[u8]) -> Result<SearchRequest, String> {
        let question: Self = serde_json::from_slice(body).map_err(|error| {
            format!("the body is no `{{\"queries\": [\"..\"], \"topk\": {TOP_K}, \"return_scores\": true}}`: {error}")
        })?;
        let queries = match (question.queries, question.query) {
            (Some(queries), None) if queries.is_empty() => {
                Err("`queries` is empty; write at least one".to_owned())
            }
            (Some(queries), None) => Ok(queries),
            (None, Some(query)) => Ok(vec![query]),
            (None, None) => Err("there is no `queries`; write a list of texts".to_owned()),
            (Some(_), Some(_)) => {
                Err("there is `queries` and `query`; write one of them".to_owned())
            }
        }?;
        let (n, k) = (queries.len(), question.topk.unwrap_or(TOP_K));
        match k {
            1..=MOST_DOCUMENTS if n * k > MOST_HITS => Err(format!(
                "{n} `queries` with `topk` {k} are {} documents; a request may have {MOST_HITS}",
                n * k
            )),
            1..=MOST_DOCUMENTS => Ok(SearchRequest { queries, k, scores: question.return_scores }),
            _ => Err(format!("`topk` is {k}; write a number from 1 to {MOST_DOCUMENTS}")),
        }
    }
}

/// Reads a list of queries up to the maximum number.
fn queries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    struct DocumentTexts;

    impl<'de> Visitor<'de> for DocumentTexts {
        type Value = Option<Vec<String>>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list of texts")
        }

        fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut texts: A) -> Result<Self::Value, A::Error> {
            let mut queries = Vec::new();
            while let Some(query) = texts.next_element()? {
                if queries.len() == MOST_QUERIES {
                    return Err(A::Error::custom(format!(
                        "`queries` has more than {MOST_QUERIES}, which a request may have"
                    )));
                }
                queries.push(query);
            }
            Ok(Some(queries))
        }
    }

    deserializer.deserialize_any(DocumentTexts)
}

/// Serializes the answer to a request: a list for each query. Returns `None` if it is too large. Documents are written
/// directly into the output without further copies.
pub fn answer(found: &[Vec<FoundDocument<'_>>], scores: bool) -> Option<Vec<u8>> {
    let mut bytes = BoundedList(Vec::new());
    write(&mut bytes, found, scores).ok()?;
    Some(bytes.0)
}

fn write(out: &mut BoundedList, found: &[Vec<FoundDocument<'_>>], scores: bool) -> io::Result<()> {
    out.write_all(b"{\"result\":[")?;
    for (i, hits) in found.iter().enumerate() {
        out.write_all(if i == 0 { b"[" } else { b",[" })?;
        for (i, hit) in hits.iter().enumerate() {
            if i > 0 {
                out.write_all(b",")?;
            }
            let document = WrittenRequest(hit.document);
            if scores {
                serde_json::to_writer(
                    &mut *out,
                    &ScoredDocument { document, score: hit.score.into() },
                )?
            } else {
                serde_json::to_writer(&mut *out, &document)?
            }
        }
        out.write_all(b"]")?;
    }
    out.write_all(b"]}")
}

/// Serialized form of a document in an answer.
struct WrittenRequest<'d>(&'d Document);

impl Serialize for WrittenRequest<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap as _;

        let Document { key, title, text, contents } = self.0;
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("id", key)?;
        match contents {
            Some(contents) => map.serialize_entry("contents", contents)?,
            None => map.serialize_entry("contents", &format_args!("\"{title}\"\n{text}"))?,
        }
        map.end()
    }
}

#[derive(Serialize)]
struct ScoredDocument<'d> {
    document: WrittenRequest<'d>,
    score: f64,
}

/// A buffer with a maximum size.
struct BoundedList(Vec<u8>);

impl Write for BoundedList {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MOST_ANSWERED {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Answer of a retriever: a list of documents for each query.
#[derive(Deserialize)]
pub(super) struct RetrieverAnswer {
    result: Vec<Vec<RetrieverItem>>,
}

/// A document of an answer: wrapped if there are scores, else bare.
#[derive(Deserialize)]
#[serde(untagged)]
enum RetrieverItem {
    Scored { document: Passage },
    Bare(Passage),
}

/// Text of a document: its contents, which Search-R1 shows, or a text of its own. The server of Search-R1 sends both for BM25.
#[derive(Deserialize)]
struct Passage {
    #[serde(default)]
    id: Value,
    title: Option<String>,
    #[serde(flatten)]
    text: PassageText,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PassageText {
    Contents { contents: String },
    Text { text: String },
}

impl RetrieverAnswer {
    /// Returns the documents for each query.
    pub(super) fn documents(self) -> Vec<Vec<Document>> {
        let found = self.result.into_iter().map(Vec::into_iter);
        found.map(|items| items.map(RetrieverItem::document).collect()).collect()
    }
}

impl RetrieverItem {
    fn document(self) -> Document {
        let (Self::Scored { document } | Self::Bare(document)) = self;
        let Passage { id, title, text } = document;
        let key = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
        match (title, text) {
            (Some(title), PassageText::Text { text }) => {
                Document { key, title, text, contents: None }
            }
            (Some(title), PassageText::Contents { contents }) => {
                Document::from_titled_contents(key, title, &contents)
            }
            (None, PassageText::Contents { contents: text } | PassageText::Text { text }) => {
                Document::from_contents(key, &text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::super::DocumentFormat;
    use super::*;

    #[test]
    fn an_answer_of_too_many_bytes_is_none() {
        let document = Document {
            key: "1".to_owned(),
            title: "T".to_owned(),
            text: "x".repeat(MOST_ANSWERED / 4),
            contents: None,
        };
        let hits = |n| vec![FoundDocument { document: &document, score: 1.0 }; n];
        assert!(answer(&[hits(3)], true).is_some());
        assert!(answer(&[hits(2), hits(2)], true).is_none());
    }

    #[test]
    fn a_question_is_read_as_search_r1_and_dr_mas_write_it() {
        let ask = |queries: &[&str], k, scores| {
            let queries = queries.iter().map(|query| (*query).to_owned()).collect();
            Ok(SearchRequest { queries, k, scores })
        };
        for (body, expected) in [
            (
                r#"{"queries": ["a", "b"], "topk": 5, "return_scores": true}"#,
                ask(&["a", "b"], 5, true),
            ),
            (r#"{"queries": ["a"]}"#, ask(&["a"], 3, false)),
            (r#"{"queries": ["a"], "topk": null}"#, ask(&["a"], 3, false)),
            (r#"{"query": "a", "topk": 1, "return_scores": true}"#, ask(&["a"], 1, true)),
        ] {
            assert_eq!(Question::read(body.as_bytes()), expected);
        }
        let written = serde_json::to_vec(&Question::new(vec!["a".to_owned()], 2)).unwrap();
        assert_eq!(Question::read(&written), ask(&["a"], 2, true));
    }

    #[test]
    fn a_bad_question_is_told_what_is_wrong_with_it() {
        let many = |n: usize, k: usize| json!({"queries": vec!["a"; n], "topk": k}).to_string();
        let (queries, hits) = (many(MOST_QUERIES + 1, 1), many(4096, 17));
        for (body, expected) in [
            ("", "the body is no `{\"queries\""),
            ("{\"queries\": \"a\"}", "expected a list of texts"),
            ("{\"queries\": [\"a\"], \"top_k\": 3}", "unknown field `top_k`"),
            ("{\"queries\": [\"a\"], \"topk\": -1}", "invalid value: integer `-1`"),
            ("{\"queries\": [\"a\"], \"topk\": 0}", "`topk` is 0; write a number from 1 to 1000"),
            ("{\"queries\": [\"a\"], \"topk\": 1001}", "`topk` is 1001"),
            ("{\"queries\": []}", "`queries` is empty"),
            ("{\"topk\": 3}", "there is no `queries`"),
            ("{\"queries\": [\"a\"], \"query\": \"a\"}", "write one of them"),
            (queries.as_str(), "`queries` has more than 4096, which a request may have"),
            (
                hits.as_str(),
                "4096 `queries` with `topk` 17 are 69632 documents; a request may have",
            ),
        ] {
            let message = Question::read(body.as_bytes()).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let documents = [("7", "T", "One.\nTwo."), ("8", "", "No title.\nAt all.")];
        let documents = documents.map(|(key, title, text)| Document {
            key: key.to_owned(),
            title: title.to_owned(),
            text: text.to_owned(),
            contents: None,
        });
        let hits: Vec<FoundDocument<'_>> =
            documents.iter().map(|document| FoundDocument { document, score: 1.5 }).collect();
        for scores in [false, true] {
            let written = answer(&[hits.clone(), Vec::new()], scores).unwrap();
            let read: RetrieverAnswer = serde_json::from_slice(&written).unwrap();
            assert_eq!(read.documents(), [documents.to_vec(), Vec::new()]);
        }
    }

    #[test]
    fn the_answers_of_the_retriever_of_search_r1_are_read_and_shown_as_it_shows_them() {
        let show = |document: Value| {
            let answer = json!({"result": [[{"document": document, "score": 1.5}]]});
            let answer: RetrieverAnswer = serde_json::from_value(answer).unwrap();
            let found = answer.documents().remove(0);
            let [lines, search_r1] = [DocumentFormat::Lines, DocumentFormat::SearchR1]
                .map(|format| format.show(&found, 0));
            (lines, search_r1)
        };
        for (document, lines, search_r1) in [
            // `BM25Retriever._search`.
            (
                json!({"title": "Oslo", "text": "It is the capital.", "contents": "\"Oslo\"\nIt is the capital."}),
                "Doc 1: (Oslo) It is the capital.",
                "Doc 1(Title: \"Oslo\") It is the capital.",
            ),
            // `DenseRetriever._search`: rows of the corpus.
            (
                json!({"id": "7", "contents": "Oslo\n It is  the capital. "}),
                "Doc 1: (Oslo) It is the capital.",
                "Doc 1(Title: Oslo)  It is  the capital.",
            ),
            (json!({"contents": "No title."}), "Doc 1: No title.", "Doc 1(Title: No title.)"),
            // Forms of other servers.
            (
                json!({"title": "Oslo", "contents": "It is the capital."}),
                "Doc 1: (Oslo) It is the capital.",
                "Doc 1(Title: It is the capital.)",
            ),
            (
                json!({"title": "Oslo", "text": "It is the capital."}),
                "Doc 1: (Oslo) It is the capital.",
                "Doc 1(Title: \"Oslo\") It is the capital.",
            ),
        ] {
            assert_eq!(
                show(document.clone()),
                (lines.to_owned(), search_r1.to_owned()),
                "{document}"
            );
        }
        let without = r#"{"result": [[{"document": {"title": "Oslo"}, "score": 1}]]}"#;
        assert!(serde_json::from_str::<RetrieverAnswer>(without).is_err());
    }

    #[test]
    fn contents_of_any_form_are_served_as_they_were_given() {
        for contents in ["Oslo\n It is  the capital. ", "No title.", "\"Oslo\"\nA capital."] {
            let document = Document::from_contents("7", contents);
            let hit = FoundDocument { document: &document, score: 1.5 };
            let written = answer(&[vec![hit]], false).unwrap();
            let written: Value = serde_json::from_slice(&written).unwrap();
            assert_eq!(written["result"][0][0]["contents"], contents);
        }
    }
}

//! The JSON that Search-R1's clients and retrievers exchange.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::index::Hit;
use crate::world::Document;

/// Documents a query gets where a request does not say.
const TOP_K: usize = 3;
/// Most documents a query can get.
const MOST_DOCUMENTS: usize = 1000;
/// Most queries of a request.
const MOST_QUERIES: usize = 4096;

/// What a client asks, as it is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queries: Option<Vec<String>>,
    /// One query, as Dr. MAS writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    query: Option<String>,
    #[serde(default)]
    topk: Option<usize>,
    #[serde(default)]
    return_scores: bool,
}

/// What a client asks, once it is found to make sense.
#[derive(Debug, PartialEq)]
pub(super) struct Ask {
    pub(super) queries: Vec<String>,
    pub(super) k: usize,
    pub(super) scores: bool,
}

impl Question {
    /// The question for the best `k` documents for some queries, with their scores.
    pub(super) fn new(queries: Vec<String>, k: usize) -> Self {
        Self { queries: Some(queries), query: None, topk: Some(k), return_scores: true }
    }

    /// Reads a request.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn read(body: &[u8]) -> Result<Ask, String> {
        let question: Self = serde_json::from_slice(body).map_err(|error| {
            format!("the body is no `{{\"queries\": [\"..\"], \"topk\": {TOP_K}, \"return_scores\": true}}`: {error}")
        })?;
        let queries = match (question.queries, question.query) {
            (Some(queries), None) if queries.is_empty() => {
                Err("`queries` is empty; write at least one".to_owned())
            }
            (Some(queries), None) if queries.len() > MOST_QUERIES => {
                Err(format!("`queries` has {}; a request may have {MOST_QUERIES}", queries.len()))
            }
            (Some(queries), None) => Ok(queries),
            (None, Some(query)) => Ok(vec![query]),
            (None, None) => Err("there is no `queries`; write a list of texts".to_owned()),
            (Some(_), Some(_)) => {
                Err("there is `queries` and `query`; write one of them".to_owned())
            }
        }?;
        match question.topk.unwrap_or(TOP_K) {
            k @ 1..=MOST_DOCUMENTS => Ok(Ask { queries, k, scores: question.return_scores }),
            k => Err(format!("`topk` is {k}; write a number from 1 to {MOST_DOCUMENTS}")),
        }
    }
}

/// The answer to a question: a list for each query.
pub(super) fn answer(found: &[Vec<Hit<'_>>], scores: bool) -> Value {
    let item = |hit: &Hit<'_>| {
        let Document { key, title, text } = hit.document;
        let document = json!({"id": key, "contents": format!("\"{title}\"\n{text}")});
        if scores { json!({"document": document, "score": hit.score}) } else { document }
    };
    let lists = found.iter().map(|hits| hits.iter().map(item).collect());
    json!({"result": lists.collect::<Vec<Vec<Value>>>()})
}

/// What a retriever answers: a list of documents for each query.
#[derive(Deserialize)]
pub(super) struct Answer {
    result: Vec<Vec<Item>>,
}

/// With scores, a document is wrapped; without, it stands alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Item {
    Scored { document: Passage },
    Bare(Passage),
}

#[derive(Deserialize)]
struct Passage {
    #[serde(default)]
    id: Value,
    title: Option<String>,
    #[serde(alias = "text")]
    contents: String,
}

impl Answer {
    /// The documents for each query.
    pub(super) fn documents(self) -> Vec<Vec<Document>> {
        let documents = |items: Vec<Item>| items.into_iter().map(Item::document).collect();
        self.result.into_iter().map(documents).collect()
    }
}

impl Item {
    fn document(self) -> Document {
        let (Self::Scored { document } | Self::Bare(document)) = self;
        let Passage { id, title, contents } = document;
        let key = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
        match title {
            Some(title) => Document { key, title, text: contents },
            None => Document::from_contents(key, &contents),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_question_is_read_as_search_r1_and_dr_mas_write_it() {
        let ask = |queries: &[&str], k, scores| {
            let queries = queries.iter().map(|query| (*query).to_owned()).collect();
            Ok(Ask { queries, k, scores })
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
        let many = serde_json::to_string(&json!({"queries": vec!["a"; MOST_QUERIES + 1]})).unwrap();
        for (body, expected) in [
            ("", "the body is no `{\"queries\""),
            ("{\"queries\": \"a\"}", "expected a sequence"),
            ("{\"queries\": [\"a\"], \"top_k\": 3}", "unknown field `top_k`"),
            ("{\"queries\": [\"a\"], \"topk\": -1}", "invalid value: integer `-1`"),
            ("{\"queries\": [\"a\"], \"topk\": 0}", "`topk` is 0; write a number from 1 to 1000"),
            ("{\"queries\": [\"a\"], \"topk\": 1001}", "`topk` is 1001"),
            ("{\"queries\": []}", "`queries` is empty"),
            ("{\"topk\": 3}", "there is no `queries`"),
            ("{\"queries\": [\"a\"], \"query\": \"a\"}", "write one of them"),
            (many.as_str(), "`queries` has 4097; a request may have 4096"),
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
        });
        let hits: Vec<Hit<'_>> =
            documents.iter().map(|document| Hit { document, score: 1.5 }).collect();
        for scores in [false, true] {
            let written = answer(&[hits.clone(), Vec::new()], scores);
            let read: Answer = serde_json::from_value(written).unwrap();
            assert_eq!(read.documents(), [documents.to_vec(), Vec::new()]);
        }
    }
}

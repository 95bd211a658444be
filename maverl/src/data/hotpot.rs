//! HotpotQA: a list of `question`, `answer`, `context`. A paragraph of a context is a document, keyed by its title; a
//! title in several contexts is one document.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, json};

use super::error::DataError;
use super::file::DataFile;
use super::row::Row;
use super::row::Rows;
use super::sources::SourceFile;
use crate::builtin::Document;
use crate::task::Task;

#[derive(Deserialize)]
struct HotpotQuestion {
    #[serde(alias = "_id")]
    id: Option<String>,
    question: String,
    answer: String,
    #[serde(default)]
    supporting_facts: HotpotFacts,
    #[serde(default)]
    context: HotpotContext,
}

/// Context in the authors' form, or as columns.
#[derive(Deserialize)]
#[serde(untagged)]
enum HotpotContext {
    Rows(Vec<(String, Vec<String>)>),
    Columns { title: Vec<String>, sentences: Vec<Vec<String>> },
}

impl Default for HotpotContext {
    fn default() -> Self {
        Self::Rows(Vec::new())
    }
}

impl HotpotContext {
    fn paragraphs(self) -> Vec<(String, Vec<String>)> {
        match self {
            Self::Rows(rows) => rows,
            Self::Columns { title, sentences } => title.into_iter().zip(sentences).collect(),
        }
    }
}

/// Supporting facts in the authors' form, or as columns.
#[derive(Deserialize)]
#[serde(untagged)]
enum HotpotFacts {
    Rows(Vec<(String, usize)>),
    Columns { title: Vec<String> },
}

impl Default for HotpotFacts {
    fn default() -> Self {
        Self::Rows(Vec::new())
    }
}

impl HotpotFacts {
    /// Returns the titles in order, without repetition.
    fn titles(self) -> Vec<String> {
        let all: Vec<String> = match self {
            Self::Rows(rows) => rows.into_iter().map(|(title, _)| title).collect(),
            Self::Columns { title } => title,
        };
        let mut titles = Vec::new();
        for title in all {
            if !titles.contains(&title) {
                titles.push(title);
            }
        }
        titles
    }
}

/// Returns every question with its number in the file.
fn questions<'f>(
    file: &'f DataFile,
) -> Result<impl Iterator<Item = Result<(usize, HotpotQuestion), DataError>> + 'f, DataError> {
    file.rows("HotpotQA file (a list of `question`, `answer`, `context`)")
}

/// Returns every paragraph with the number of the first question that has it.
pub(super) fn documents(file: &DataFile) -> Result<Vec<(usize, Document)>, DataError> {
    let mut documents = BTreeMap::new();
    for question in questions(file)? {
        let (line, question) = question?;
        for (title, sentences) in question.context.paragraphs() {
            documents.entry(title).or_insert_with(|| (line, sentences.concat()));
        }
    }
    let documents = documents.into_iter().map(|(title, (line, text)): (String, _)| {
        (line, Document { key: title.clone(), title, text, contents: None })
    });
    Ok(documents.collect())
}

/// Returns the tasks. The id of a question without one is its number in the file, from 1.
pub(super) fn tasks(file: &SourceFile) -> Result<Rows<'_>, DataError> {
    let source = file.source();
    let rows = questions(file)?.map(move |question| {
        let (line, question) = question?;
        let data = Map::from_iter([
            ("answers".to_owned(), json!([question.answer])),
            ("support".to_owned(), json!(question.supporting_facts.titles())),
        ]);
        let named = question.id.is_some();
        let id = question.id.unwrap_or_else(|| line.to_string());
        let task = Task { id, source: source.clone(), question: question.question, data };
        Ok(Row { task, split: None, line, named })
    });
    Ok(Box::new(rows))
}

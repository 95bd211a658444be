//! SQuAD: `data[].paragraphs[].qas[]`. A paragraph is a document, and the support of its questions.

use serde::Deserialize;
use serde_json::{Map, json};

use super::error::DataError;
use super::row::Row;
use super::row::Rows;
use super::sources::SourceFile;
use crate::builtin::Document;
use crate::task::Task;

#[derive(Deserialize)]
struct Squad {
    data: Vec<Article>,
}

#[derive(Deserialize)]
struct Article {
    #[serde(default)]
    title: String,
    paragraphs: Vec<Paragraph>,
}

#[derive(Deserialize)]
struct Paragraph {
    context: String,
    #[serde(default)]
    qas: Vec<SquadQuestion>,
}

#[derive(Deserialize)]
struct SquadQuestion {
    id: String,
    question: String,
    #[serde(default)]
    answers: Vec<SquadAnswer>,
}

#[derive(Deserialize)]
struct SquadAnswer {
    text: String,
}

/// Returns the paragraphs with their keys, which consist of the indices of article and paragraph; in a data set, after the name
/// of the file.
fn paragraphs(file: &SourceFile) -> Result<Vec<(Document, Vec<SquadQuestion>)>, DataError> {
    let squad: Squad = file.parse("SQuAD file (`data[].paragraphs[].qas[]`)")?;
    let articles = squad.data.into_iter().enumerate().flat_map(|(i, article)| {
        let title = article.title.replace('_', " ");
        article.paragraphs.into_iter().enumerate().map(move |(j, paragraph)| {
            let key = file.document_key(format!("{i:04}-{j:04}"));
            let document =
                Document { key, title: title.clone(), text: paragraph.context, contents: None };
            (document, paragraph.qas)
        })
    });
    Ok(articles.collect())
}

/// Returns every paragraph with its index in the file.
pub(super) fn documents(file: &SourceFile) -> Result<Vec<(usize, Document)>, DataError> {
    let documents = paragraphs(file)?.into_iter().map(|(document, _)| document);
    Ok((1..).zip(documents).collect())
}

/// Returns the tasks. Questions without an answer (SQuAD 2) are skipped, because they cannot be scored.
pub(super) fn tasks(file: &SourceFile) -> Result<Rows<'_>, DataError> {
    let source = file.source();
    let mut rows = Vec::new();
    let mut line = 0;
    for (document, questions) in paragraphs(file)? {
        for SquadQuestion { id, question, answers } in questions {
            line += 1;
            let mut answers: Vec<String> = answers.into_iter().map(|answer| answer.text).collect();
            answers.dedup();
            if answers.is_empty() {
                continue;
            }
            let data = Map::from_iter([
                ("answers".to_owned(), json!(answers)),
                ("support".to_owned(), json!([document.key])),
            ]);
            let task = Task { id, source: source.clone(), question, data };
            rows.push(Ok(Row { task, split: None, line, named: true }));
        }
    }
    Ok(Box::new(rows.into_iter()))
}

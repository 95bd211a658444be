//! Questions over a corpus: a query gets the best documents, an answer is right if it says what a reference says.
//!
//! Queries are answered by a BM25 index in memory, or by a retriever that speaks Search-R1's protocol. The answer alone
//! is judged; nothing that was retrieved can count as one.

mod index;
mod look;
mod retriever;
mod score;

pub use index::Index;
pub use retriever::Retriever;
pub use score::{exact_match, f1, normalize};

use std::path::Path;
use std::sync::Arc;

use maverl_macros::environment;
use serde_json::{Map, json};

use super::{EnvError, Environment, Session};
use crate::task::{Action, Observation, Score, Task};
use crate::world::{Document, facts};

/// Answers queries with documents of a corpus, and wants the answer word for word.
#[environment(name = "search", offers("search"))]
pub struct SearchEnvironment {
    /// `builtin:facts`, or a file of documents: JSONL of `id`, `title`, `text`; SQuAD; HotpotQA.
    pub corpus: String,
    /// Documents a query gets.
    pub top_k: usize,
    /// Longest text of a document in characters; 0 shows all of it.
    pub max_chars: usize,
    /// URL of a Search-R1 retriever to ask instead of indexing the corpus; empty for none.
    pub retriever: String,
    /// Seconds the retriever may take for an answer.
    pub timeout_s: f64,
    /// How often a retriever that is busy or out of reach is asked again.
    pub retries: u32,
    /// Made in [`Environment::start`].
    #[serde(skip)]
    backend: Backend,
}

#[derive(Default)]
enum Backend {
    #[default]
    NotStarted,
    Index(Index),
    Retriever(Arc<Retriever>),
}

impl Default for SearchEnvironment {
    fn default() -> Self {
        Self {
            corpus: facts::NAME.to_owned(),
            top_k: 3,
            max_chars: 0,
            retriever: String::new(),
            timeout_s: 30.0,
            retries: 5,
            backend: Backend::NotStarted,
        }
    }
}

impl Environment for SearchEnvironment {
    fn look(&self, base: &Path, tasks: &[Task]) -> Result<Vec<String>, EnvError> {
        self.timeout()?;
        if self.retriever.is_empty() {
            self.documents(base)?;
        }
        Ok(look::warnings(self, tasks))
    }

    fn start(&mut self, base: &Path) -> Result<(), EnvError> {
        let timeout = self.timeout()?;
        self.backend = if self.retriever.is_empty() {
            Backend::Index(Index::new(self.documents(base)?)?)
        } else {
            Backend::Retriever(Arc::new(Retriever::new(&self.retriever, timeout, self.retries)))
        };
        Ok(())
    }

    /// How often BM25 finds what supports a task, if the tasks say so: what even a perfect team cannot do without.
    fn note(&self, tasks: &[Task]) -> Result<Option<String>, EnvError> {
        let supported: Vec<Task> =
            tasks.iter().filter(|task| !texts(task, "support").is_empty()).cloned().collect();
        let k = self.top_k;
        let note = |recall| {
            let n = supported.len();
            format!("BM25 recall@{k} of the supporting document: {recall:.3} on {n} questions")
        };
        Ok(self.recall(&supported, k)?.map(note))
    }

    async fn act(&self, _: &mut Session, action: Action) -> Result<Observation, EnvError> {
        let query = match action {
            Action::Text(query) => query,
            Action::Tool { name, arguments } => match arguments["query"].as_str() {
                Some(query) if name == "search" => query.to_owned(),
                _ => return Ok(Observation::new("the only tool is search, and needs a query")),
            },
        };
        if !query.contains(char::is_alphanumeric) {
            return Ok(Observation::new("the query is empty"));
        }
        let documents = match &self.backend {
            Backend::Index(index) => {
                index.search(&query, self.top_k)?.into_iter().cloned().collect()
            }
            Backend::Retriever(retriever) => retriever.search(&query, self.top_k).await?,
            Backend::NotStarted => {
                return Err(EnvError::new("the search environment was not started"));
            }
        };
        Ok(Observation::new(self.show(&documents)))
    }

    fn score(&self, session: &Session, answer: Option<&str>) -> Score {
        let references = texts(&session.task, "answers");
        let answer = answer.unwrap_or_default();
        let solved = references.iter().any(|reference| exact_match(answer, reference));
        let best = references.iter().map(|reference| f1(answer, reference)).fold(0.0, f64::max);
        Score { metrics: Map::from_iter([("f1".to_owned(), json!(best))]), ..Score::binary(solved) }
    }
}

impl SearchEnvironment {
    /// A started environment over given documents, which shows the best `top_k` of them.
    ///
    /// # Errors
    ///
    /// If there are no documents, or two have one key.
    pub fn over(documents: Vec<Document>, top_k: usize) -> Result<Self, EnvError> {
        let backend = Backend::Index(Index::new(documents)?);
        Ok(Self { top_k, backend, ..Self::default() })
    }

    /// Share of tasks whose question, as the query, finds a document of `data.support` among the best `k`. Tasks
    /// without `data.support` are left out; `None` if that leaves none, or if there is no index here.
    ///
    /// # Errors
    ///
    /// If the index fails.
    pub fn recall(&self, tasks: &[Task], k: usize) -> Result<Option<f64>, EnvError> {
        let Backend::Index(index) = &self.backend else { return Ok(None) };
        let (mut found, mut total) = (0_u32, 0_u32);
        for task in tasks {
            let support = texts(task, "support");
            if support.is_empty() {
                continue;
            }
            let documents = index.search(&task.question, k)?;
            total += 1;
            found += u32::from(documents.iter().any(|document| support.contains(&document.key)));
        }
        Ok((total > 0).then(|| f64::from(found) / f64::from(total)))
    }

    /// What a query gets to see: a line a document.
    fn show(&self, documents: &[Document]) -> String {
        if documents.is_empty() {
            return "no document has any of these words".to_owned();
        }
        let lines = documents.iter().enumerate().map(|(i, document)| {
            let line = document.line();
            let line = match line.char_indices().nth(self.max_chars) {
                Some((end, _)) if self.max_chars > 0 => &line[..end],
                _ => &line,
            };
            format!("Doc {}: {line}", i + 1)
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// A list of texts in a task's data, like `answers` or `support`; empty where there is none.
pub fn texts(task: &Task, field: &str) -> Vec<String> {
    let values = task.data.get(field).and_then(|value| value.as_array());
    values.into_iter().flatten().filter_map(|value| value.as_str()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;

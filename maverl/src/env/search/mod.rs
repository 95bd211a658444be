//! Questions over a corpus: a query gets the best documents, an answer is right if it says what a reference says.
//!
//! Queries are answered by an index in memory, which ranks documents by words, by meaning, or by both, or by a retriever
//! that speaks Search-R1's protocol. The answer alone is judged; nothing that was retrieved can count as one.

mod batched;
mod bm25;
mod cache;
mod dense;
mod index;
mod options;
mod protocol;
mod retriever;
mod score;
mod server;
mod validate;

pub use batched::BatchedSearch;
pub use dense::{Dense, Encoder, Neighbors, Pooling};
pub use index::{Hit, Index, Ranking};
pub use retriever::Retriever;
pub use score::{exact_match, f1, normalize};
pub use server::serve;

use std::path::Path;
use std::sync::Arc;

use maverl_macros::environment;
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use super::{EnvError, Environment, Session};
use crate::builtin::{Document, facts};
use crate::task::{Action, Observation, Score, Task};

/// Questions whose documents are looked for before a run, at most: an encoder takes its time.
const NOTED: usize = 1000;

/// What an answer earns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerReward {
    /// 1 if it equals a reference, else 0.
    #[default]
    Em,
    /// Its word F1 with the nearest reference.
    F1,
}

/// Answers queries with documents of a corpus, and wants the answer word for word.
#[environment(name = "search", offers("search"))]
pub struct SearchEnvironment {
    /// `builtin:facts`, or a file of documents: JSONL of `id`, `title`, `text`; SQuAD; HotpotQA.
    pub corpus: String,
    /// MiB that a compressed corpus may unpack to.
    pub max_mib: u64,
    /// Documents a query gets.
    pub top_k: usize,
    /// Longest text of a document in characters; 0 shows all of it.
    pub max_chars: usize,
    /// What an answer earns: `em` or `f1`. It is solved if it equals a reference, in either case.
    pub reward: AnswerReward,
    /// What documents are ranked by: `bm25`, `dense` or `hybrid`.
    pub ranking: Ranking,
    /// For `dense` and `hybrid`: the model whose hidden states are embeddings, a directory or `builtin:tiny`.
    pub encoder: String,
    /// How hidden states become an embedding: `mean`, or `last` for that of the last token.
    pub pooling: Pooling,
    /// What the encoder reads before each query.
    pub query_prefix: String,
    /// What the encoder reads before each document.
    pub document_prefix: String,
    /// Most tokens of a text that the encoder reads.
    pub max_tokens: usize,
    /// How the nearest documents are found: `exact`, or `hnsw` for large corpora.
    pub neighbors: Neighbors,
    /// Queries whose documents are kept for when they are asked again; 0 keeps none.
    pub cache: usize,
    /// URL of a Search-R1 retriever to ask instead of indexing the corpus; empty for none.
    pub retriever: String,
    /// The environment variable that holds the retriever's key; empty for none.
    pub key_env: String,
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
    Index(BatchedSearch),
    Retriever(Arc<Retriever>),
}

impl Default for SearchEnvironment {
    fn default() -> Self {
        Self {
            corpus: facts::NAME.to_owned(),
            max_mib: 1024,
            top_k: 3,
            max_chars: 0,
            reward: AnswerReward::default(),
            ranking: Ranking::default(),
            encoder: String::new(),
            pooling: Pooling::default(),
            query_prefix: String::new(),
            document_prefix: String::new(),
            max_tokens: 512,
            neighbors: Neighbors::default(),
            cache: 4096,
            retriever: String::new(),
            key_env: String::new(),
            timeout_s: 30.0,
            retries: 5,
            backend: Backend::NotStarted,
        }
    }
}

impl Environment for SearchEnvironment {
    fn validate(&self, base: &Path, tasks: &[Task]) -> Result<Vec<String>, EnvError> {
        self.timeout()?;
        self.encoder(base)?;
        if self.retriever.is_empty() {
            self.documents(base)?;
        }
        Ok(validate::warnings(self, tasks))
    }

    fn start(&mut self, base: &Path) -> Result<(), EnvError> {
        self.backend = self.backend(base)?;
        Ok(())
    }

    /// How often the index finds what supports a task, if the tasks say so: what even a perfect team cannot do without.
    fn report(&self, tasks: &[Task]) -> Result<Option<String>, EnvError> {
        let supported = tasks.iter().filter(|task| !texts(task, "support").is_empty());
        let supported: Vec<Task> = supported.take(NOTED).cloned().collect();
        let k = self.top_k;
        let note = |recall| {
            let n = supported.len();
            let by = match self.ranking {
                Ranking::Bm25 => "BM25",
                Ranking::Dense => "dense",
                Ranking::Hybrid => "hybrid",
            };
            format!("{by} recall@{k} of the supporting document: {recall:.3} on {n} questions")
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
            Backend::Index(batched) => {
                let found = batched.search(&[query], self.top_k).await?;
                found.into_iter().flatten().map(|hit| hit.document.clone()).collect()
            }
            Backend::Retriever(retriever) => retriever.search(&query, self.top_k).await?,
            Backend::NotStarted => {
                return Err(EnvError::new("the search environment was not started"));
            }
        };
        Ok(Observation::new(self.show(&documents)))
    }

    fn measure(&self) -> &'static str {
        "exact match"
    }

    fn score(&self, session: &Session, answer: Option<&str>) -> Score {
        // Without an answer nothing is right, not even where a reference normalizes to nothing.
        let references =
            if answer.is_some() { texts(&session.task, "answers") } else { Vec::new() };
        let answer = answer.unwrap_or_default();
        let solved = references.iter().any(|reference| exact_match(answer, reference));
        let best = references.iter().map(|reference| f1(answer, reference)).fold(0.0, f64::max);
        let metrics = Map::from_iter([("f1".to_owned(), json!(best))]);
        match self.reward {
            AnswerReward::Em => Score { metrics, ..Score::binary(solved) },
            AnswerReward::F1 => Score { reward: best, solved, metrics },
        }
    }
}

impl SearchEnvironment {
    /// A started environment over given documents, which shows the best `top_k` of them.
    ///
    /// # Errors
    ///
    /// If there are no documents, or two have one key.
    pub fn over(documents: Vec<Document>, top_k: usize) -> Result<Self, EnvError> {
        let search = Self { top_k, ..Self::default() };
        let backend = Backend::Index(BatchedSearch::new(Index::new(documents)?, search.cache));
        Ok(Self { backend, ..search })
    }

    /// Share of tasks whose question, as the query, finds a document of `data.support` among the best `k`. Tasks
    /// without `data.support` are left out; `None` if that leaves none, or if there is no index here.
    ///
    /// # Errors
    ///
    /// If the index fails.
    pub fn recall(&self, tasks: &[Task], k: usize) -> Result<Option<f64>, EnvError> {
        let Backend::Index(batched) = &self.backend else { return Ok(None) };
        let supported: Vec<(&str, Vec<String>)> = tasks
            .iter()
            .map(|task| (task.question.as_str(), texts(task, "support")))
            .filter(|(_, support)| !support.is_empty())
            .collect();
        let questions: Vec<&str> = supported.iter().map(|(question, _)| *question).collect();
        let found = batched.index().search(&questions, k)?;
        let helps = |(hits, (_, support)): &(&Vec<Hit<'_>>, &(&str, Vec<String>))| {
            hits.iter().any(|hit| support.contains(&hit.document.key))
        };
        let helped = found.iter().zip(&supported).filter(helps).count();
        Ok((!supported.is_empty()).then(|| helped as f64 / supported.len() as f64))
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

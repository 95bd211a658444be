//! The search environment: questions over a corpus. A query returns the best documents; an answer is right if it
//! matches a reference.
//!
//! Queries are answered by an in-memory index (by words, by embeddings, or by both) or by a retriever with Search-R1's
//! protocol. Only the answer is judged; retrieved text can never count as an answer.

mod batched;
mod bm25;
mod build;
mod cache;
mod dense;
mod document_format;
mod index;
mod options;
#[doc(hidden)]
pub mod protocol;
mod ranked;
mod retriever;
mod score;
mod validate;

#[doc(hidden)]
pub use batched::BatchedSearch;
#[doc(hidden)]
pub use dense::{Dense, Encoder, EncoderOptions};
pub use dense::{Neighbors, Normalization, Pooling};
pub use document_format::DocumentFormat;
pub use index::Ranking;
#[doc(hidden)]
pub use index::{FoundDocument, Index};
#[doc(hidden)]
pub use retriever::Retriever;
pub use retriever::RetrieverProtocol;
pub use score::{exact_match, f1, normalize};

use std::path::Path;
use std::sync::Arc;

use maverl_macros::{Settings, environment};
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use super::{EnvError, Environment, Session};
use crate::builtin::{Document, facts};
use crate::task::{Action, Observation, Score, Task, TaskList};

/// Maximum number of questions in the recall report before a run, because encoding takes time.
const NOTED: usize = 1000;

/// Reward of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerReward {
    /// 1 for an exact match with a reference, else 0.
    #[default]
    Em,
    /// Word F1 with the nearest reference.
    F1,
}

/// Answers queries with documents of a corpus, and judges the answer word for word.
#[environment(name = "search", offers("search"))]
#[derive(Settings)]
pub struct SearchEnvironment {
    /// `builtin:facts`, or a file of documents: JSONL of `id`, `title`, `text`; SQuAD; HotpotQA.
    #[setting(default = facts::NAME.to_owned())]
    pub corpus: String,
    /// Maximum unpacked size of a compressed corpus in MiB.
    #[setting(default = 1024)]
    pub max_mib: u64,
    /// Number of documents per query.
    #[setting(default = 3)]
    pub top_k: usize,
    /// Maximum length of a document's text in characters; 0 for no limit.
    pub max_chars: usize,
    /// Form of the documents in an observation: `lines`, or `search_r1` for the text of Search-R1.
    pub document_format: DocumentFormat,
    /// Reward of an answer: `em` or `f1`. An episode is solved by an exact match in either case.
    pub reward: AnswerReward,
    /// Ranking of documents: `bm25`, `dense` or `hybrid`.
    pub ranking: Ranking,
    /// Encoder of `dense` and `hybrid`, whose hidden states become embeddings: a directory, `hf:ORG/NAME` or `builtin:tiny`.
    pub encoder: String,
    /// Pooling of hidden states into an embedding: `mean`, `cls` for the first token, `last` for the last one, or `auto` for the one
    /// that the model's files name, else `mean`.
    pub pooling: Pooling,
    /// Scaling of embeddings to length 1: `always`, `never`, or `auto` as the model's files say, else `always`.
    pub normalize: Normalization,
    /// Text before each query in the encoder's input.
    pub query_prefix: String,
    /// Text before each document in the encoder's input.
    pub document_prefix: String,
    /// Maximum number of tokens of an encoded text.
    #[setting(default = 512)]
    pub max_tokens: usize,
    /// Nearest-neighbor search: `exact`, or `hnsw` for large corpora.
    pub neighbors: Neighbors,
    /// Embeddings of the documents: a flat index of faiss, whose vectors are those of the corpus's rows; empty to compute them.
    pub index: String,
    /// Number of queries whose results are cached; 0 for none.
    #[setting(default = 4096)]
    pub cache: usize,
    /// URL of a retriever that replaces the index of the corpus; empty for none.
    pub retriever: String,
    /// Protocol of the retriever: `search_r1`, or `drmas` for the server of Dr. MAS.
    pub protocol: RetrieverProtocol,
    /// Environment variable that holds the retriever's key; empty for none.
    pub key_env: String,
    /// Timeout of the retriever in seconds.
    #[setting(default = 30.0)]
    pub timeout_s: f64,
    /// Number of retries if a retriever is busy or unreachable.
    #[setting(default = 5)]
    pub retries: u32,
    /// Set by [`Environment::start`].
    #[serde(skip)]
    backend: SearchBackend,
}

#[derive(Default)]
enum SearchBackend {
    #[default]
    NotStarted,
    Index(BatchedSearch),
    Retriever(Arc<Retriever>),
}

impl Environment for SearchEnvironment {
    fn validate(&self, base: &Path, tasks: &TaskList) -> Result<Vec<String>, EnvError> {
        self.timeout()?;
        let model = self.encoder_model(base)?;
        if self.retriever.is_empty() {
            self.check_index(base, model.as_ref())?;
        }
        validate::check_answers(tasks.iter())?;
        Ok(validate::option_warnings(&self.corpus, &self.retriever, tasks))
    }

    fn start(&mut self, base: &Path) -> Result<(), EnvError> {
        self.backend = self.backend(base)?;
        Ok(())
    }

    /// Reports the share of tasks whose supporting documents the index finds, if the tasks name them. It bounds the
    /// score of any team.
    fn report(&self, tasks: &[Task]) -> Result<Option<String>, EnvError> {
        validate::check_answers(tasks)?;
        let supported = tasks.iter().filter(|task| !task.texts("support").is_empty());
        let supported: Vec<Task> = supported.take(NOTED).cloned().collect();
        let (k, n) = (self.top_k, supported.len());
        let Some(recall) = self.recall(&supported, k)? else { return Ok(None) };
        let by = match self.ranking {
            Ranking::Bm25 => "BM25",
            Ranking::Dense => "dense",
            Ranking::Hybrid => "hybrid",
        };
        Ok(Some(format!(
            "{by} recall@{k} of the supporting document: {recall:.3} on {n} questions"
        )))
    }

    async fn act(&self, _: &mut Session, action: Action) -> Result<Observation, EnvError> {
        let query = match action {
            Action::Text(query) => query,
            Action::Tool { name, arguments } => match arguments["query"].as_str() {
                Some(query) if name == "search" => query.to_owned(),
                _ => return Ok(Observation::new("the only tool is search, and needs a query")),
            },
        };
        let searches = self.document_format == DocumentFormat::SearchR1;
        if !searches && !query.contains(char::is_alphanumeric) {
            return Ok(Observation::new("the query is empty"));
        }
        let documents = match &self.backend {
            SearchBackend::Index(batched) => {
                let found = batched.search(&[query], self.top_k).await?;
                found.into_iter().flatten().map(|hit| hit.document.clone()).collect()
            }
            SearchBackend::Retriever(retriever) => retriever.search(&query, self.top_k).await?,
            SearchBackend::NotStarted => {
                return Err(EnvError::new("the search environment was not started"));
            }
        };
        Ok(Observation::new(self.document_format.show(&documents, self.max_chars)))
    }

    fn measure(&self) -> &'static str {
        "exact match"
    }

    async fn score(&self, session: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        validate::check_answers(std::slice::from_ref(&session.task))?;
        let references = session.task.texts("answers");
        // An empty answer is wrong, even if a reference normalizes to the empty text.
        let references = if answer.is_some() { references } else { Vec::new() };
        let answer = answer.unwrap_or_default();
        let solved = references.iter().any(|reference| exact_match(answer, reference));
        let best = references.iter().map(|reference| f1(answer, reference)).fold(0.0, f64::max);
        let metrics = Map::from_iter([("f1".to_owned(), json!(best))]);
        Ok(match self.reward {
            AnswerReward::Em => Score { metrics, ..Score::binary(solved) },
            AnswerReward::F1 => Score { reward: best, solved, metrics },
        })
    }
}

impl SearchEnvironment {
    /// Creates a started environment over given documents that shows the best `top_k` of them.
    ///
    /// # Errors
    ///
    /// If there are no documents, or two of them share a key.
    pub fn over(documents: Vec<Document>, top_k: usize) -> Result<Self, EnvError> {
        let search = Self { top_k, ..Self::default() };
        let backend =
            SearchBackend::Index(BatchedSearch::new(Index::new(documents)?, search.cache));
        Ok(Self { backend, ..search })
    }

    /// Returns the share of tasks whose question, as the query, finds a document of `data.support` among the best `k`.
    /// Tasks without `data.support` are excluded; `None` if no task is left, or if there is no local index.
    ///
    /// # Errors
    ///
    /// If the index fails.
    pub fn recall(&self, tasks: &[Task], k: usize) -> Result<Option<f64>, EnvError> {
        let SearchBackend::Index(batched) = &self.backend else { return Ok(None) };
        let supported: Vec<(&str, Vec<String>)> = tasks
            .iter()
            .map(|task| (task.question.as_str(), task.texts("support")))
            .filter(|(_, support)| !support.is_empty())
            .collect();
        let questions: Vec<&str> = supported.iter().map(|(question, _)| *question).collect();
        let found = batched.index().search(&questions, k)?;
        let helped = found.iter().zip(&supported).filter(|(hits, (_, support))| {
            hits.iter().any(|hit| support.contains(&hit.document.key))
        });
        Ok((!supported.is_empty()).then(|| helped.count() as f64 / supported.len() as f64))
    }
}

#[cfg(test)]
mod tests;

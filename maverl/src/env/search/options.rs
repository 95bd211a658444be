//! Validation of the options of the search environment, and construction from them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::dense::{Dense, Encoder};
use super::{
    BatchedSearch, Index, Ranking, Retriever, RetrieverProtocol, SearchBackend, SearchEnvironment,
};
use crate::builtin::Document;
use crate::client::lacks_https;
use crate::data::{self, Bounds};
use crate::env::EnvError;
use crate::env::options::{read_key, read_timeout};
use crate::files::{ModelFiles, ModelSource};

impl SearchEnvironment {
    /// Returns the timeout of a retriever after validating the options.
    ///
    /// # Errors
    ///
    /// The invalid option.
    pub(super) fn timeout(&self) -> Result<Duration, EnvError> {
        if self.top_k == 0 {
            return Err(EnvError::new("`top_k` is 0; a query must get at least one document"));
        }
        let after =
            ["http://", "https://"].iter().find_map(|scheme| self.retriever.strip_prefix(scheme));
        let host = after.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
        if !self.retriever.is_empty() && !host {
            return Err(EnvError(format!(
                "`retriever` is {:?}; write a whole URL, as \"http://127.0.0.1:8000/retrieve\"",
                self.retriever
            )));
        }
        if let Some(reason) = lacks_https(&self.retriever) {
            return Err(EnvError(format!("`retriever` {reason}")));
        }
        if self.retriever.is_empty() && !self.key_env.is_empty() {
            return Err(EnvError::new("`key_env` has no effect without `retriever`; remove it"));
        }
        if self.retriever.is_empty() && self.protocol != RetrieverProtocol::default() {
            return Err(EnvError::new("`protocol` has no effect without `retriever`; remove it"));
        }
        read_key(&self.key_env)?;
        read_timeout(self.timeout_s)
    }

    /// Reads the documents of the corpus.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    pub(super) fn documents(&self, base: &Path) -> Result<Vec<Document>, EnvError> {
        data::corpus(&self.corpus, base, Bounds::of_corpus(self.max_mib))
            .map_err(|error| EnvError(format!("`corpus`: {error}")))
    }

    /// Returns the encoder model if the ranking needs one.
    ///
    /// # Errors
    ///
    /// If it is missing or does not exist, or is given without effect.
    pub(super) fn encoder(&self, base: &Path) -> Result<Option<ModelSource>, EnvError> {
        if self.ranking == Ranking::Bm25 {
            return if self.encoder.is_empty() {
                Ok(None)
            } else {
                Err(EnvError::new(
                    "`encoder` has no effect on words; write `ranking = \"dense\"` or `\"hybrid\"` beside it",
                ))
            };
        }
        if !self.retriever.is_empty() {
            return Err(EnvError::new(
                "`ranking` has no effect beside `retriever`, which ranks as it does; leave one of them out",
            ));
        }
        if self.encoder.is_empty() {
            return Err(EnvError::new(
                "`encoder` is empty, and the ranking needs one; write a model directory, or `builtin:tiny`",
            ));
        }
        if self.max_tokens == 0 {
            return Err(EnvError::new("`max_tokens` is 0; an encoder must read something"));
        }
        let local = if self.encoder.starts_with("builtin:") {
            ModelSource::parse(&self.encoder)
        } else {
            Ok(ModelSource::at(base.join(&self.encoder)))
        };
        let there = local.and_then(|source| {
            ModelFiles::new(&source).require("config.json")?;
            Ok(source)
        });
        there.map(Some).map_err(|error| EnvError(format!("`encoder`: {error}")))
    }

    /// Builds the index that the options describe.
    ///
    /// # Errors
    ///
    /// If the corpus or the encoder cannot be read, or an option is invalid.
    pub fn index(&self, base: &Path) -> Result<Index, EnvError> {
        let source = self.encoder(base)?;
        let documents = self.documents(base)?;
        let Some(source) = source else { return Index::new(documents) };
        let encoder = Encoder::load(&source, self.pooling, self.max_tokens)?;
        let dense = Dense {
            query_prefix: self.query_prefix.clone(),
            document_prefix: self.document_prefix.clone(),
            neighbors: self.neighbors,
        };
        match self.ranking {
            Ranking::Hybrid => Index::hybrid(documents, encoder, &dense),
            Ranking::Bm25 | Ranking::Dense => Index::dense(documents, encoder, &dense),
        }
    }

    /// Creates the backend that answers queries.
    pub(super) fn backend(&self, base: &Path) -> Result<SearchBackend, EnvError> {
        let timeout = self.timeout()?;
        if self.retriever.is_empty() {
            return Ok(SearchBackend::Index(BatchedSearch::new(self.index(base)?, self.cache)));
        }
        self.encoder(base)?;
        let key = read_key(&self.key_env)?;
        let retriever = Retriever::new(&self.retriever, key, timeout, self.retries, self.cache);
        Ok(SearchBackend::Retriever(Arc::new(retriever.with_protocol(self.protocol))))
    }
}

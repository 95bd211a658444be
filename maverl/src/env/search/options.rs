//! Validation of the options of the search environment, and the backend that they describe.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{BatchedSearch, Retriever, RetrieverProtocol, SearchBackend, SearchEnvironment};
use crate::client::lacks_https;
use crate::env::EnvError;
use crate::env::options::{read_key, read_timeout};

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

    /// Creates the backend that answers queries.
    pub(super) fn backend(&self, base: &Path) -> Result<SearchBackend, EnvError> {
        let timeout = self.timeout()?;
        if self.retriever.is_empty() {
            return Ok(SearchBackend::Index(BatchedSearch::new(self.index(base)?, self.cache)));
        }
        self.encoder_model(base)?;
        let key = read_key(&self.key_env)?;
        let retriever = Retriever::new(&self.retriever, key, timeout, self.retries, self.cache);
        Ok(SearchBackend::Retriever(Arc::new(retriever.with_protocol(self.protocol))))
    }
}

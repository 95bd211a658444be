//! What can be said of a search environment before it is started.

use std::path::Path;
use std::time::Duration;

use super::{SearchEnvironment, texts};
use crate::data;
use crate::env::EnvError;
use crate::task::Task;
use crate::world::{Document, facts};

impl SearchEnvironment {
    /// The timeout of a retriever, once the options are found to make sense.
    ///
    /// # Errors
    ///
    /// The option that does not.
    pub(super) fn timeout(&self) -> Result<Duration, EnvError> {
        if self.top_k == 0 {
            return Err(EnvError::new("`top_k` is 0; a query must get at least one document"));
        }
        let after =
            ["http://", "https://"].iter().find_map(|scheme| self.retriever.strip_prefix(scheme));
        let host = after.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
        if !self.retriever.is_empty() && !host {
            return Err(EnvError::new(format!(
                "`retriever` is {:?}; write a whole URL, as \"http://127.0.0.1:8000/retrieve\"",
                self.retriever
            )));
        }
        let timeout = Duration::try_from_secs_f64(self.timeout_s).ok();
        timeout.filter(|timeout| !timeout.is_zero()).ok_or_else(|| {
            EnvError::new(format!("`timeout_s` is {}; write seconds above 0", self.timeout_s))
        })
    }

    /// The documents of the corpus.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    pub(super) fn documents(&self, base: &Path) -> Result<Vec<Document>, EnvError> {
        data::corpus(&self.corpus, base)
            .map_err(|error| EnvError::new(format!("`corpus`: {error}")))
    }
}

/// What is legal, and probably not meant.
pub(super) fn warnings(search: &SearchEnvironment, tasks: &[Task]) -> Vec<String> {
    let mut warnings = Vec::new();
    let unanswered = |task: &&Task| texts(task, "answers").is_empty();
    let without: Vec<&Task> = tasks.iter().filter(unanswered).collect();
    if let Some(first) = without.first() {
        let (n, all) = (without.len(), tasks.len());
        let id = &first.id;
        warnings.push(format!(
            "{n} of {all} tasks have no `answers`, the first is `{id}`: no reply to them can be right"
        ));
    }
    let own = tasks.iter().any(|task| !task.source.starts_with("facts/"));
    if own && search.retriever.is_empty() && search.corpus == facts::NAME {
        warnings.push(format!(
            "the questions are not those of `{0}`, but `environment.corpus` is `{0}`: name a file of documents that \
             answer them",
            facts::NAME
        ));
    }
    warnings
}

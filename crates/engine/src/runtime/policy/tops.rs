//! Log-probs of the most probable tokens, and of given ones.

use crate::files::ModelError;
use crate::runtime::packed::Support;
use crate::runtime::{Policy, Row, RuntimeError, TopTokens};

impl Policy {
    /// Computes the `k` most probable tokens in the place of each completion token of rows, at most all of the tokenizer: further
    /// rows of the embedding are no tokens, and models with one tokenizer have other numbers of them. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn top_tokens(
        &self,
        rows: Vec<Row>,
        k: usize,
    ) -> Result<Vec<TopTokens>, RuntimeError> {
        self.check(&rows)?;
        self.support_tokens(rows, self.most_probable(k)).await
    }

    /// Computes the `k` most probable tokens under the reference, as [`Policy::top_tokens`] does. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`]; also if no reference is kept for this policy.
    pub async fn reference_top_tokens(
        &self,
        rows: Vec<Row>,
        k: usize,
    ) -> Result<Vec<TopTokens>, RuntimeError> {
        self.check(&rows)?;
        self.reference_support_tokens(rows, self.most_probable(k)).await
    }

    /// Computes the log-probs of the tokens that [`Row::teacher`] has in each place, as many for every row; its own log-probs are not
    /// read. A token that the model does not have has the log-prob of a probability of 1e-6. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`]; also if a row has no such tokens.
    pub async fn given_tokens(&self, rows: Vec<Row>) -> Result<Vec<TopTokens>, RuntimeError> {
        self.check_given(&rows)?;
        self.support_tokens(rows, Support::Given).await
    }

    /// Computes the log-probs of given tokens under the reference, as [`Policy::given_tokens`] does. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`]; also if a row has no such tokens, or no reference is kept for this policy.
    pub async fn reference_given_tokens(
        &self,
        rows: Vec<Row>,
    ) -> Result<Vec<TopTokens>, RuntimeError> {
        self.check_given(&rows)?;
        self.reference_support_tokens(rows, Support::Given).await
    }

    fn most_probable(&self, k: usize) -> Support {
        Support::Top { k, among: self.worker.tokenizer.len() }
    }

    async fn support_tokens(
        &self,
        rows: Vec<Row>,
        support: Support,
    ) -> Result<Vec<TopTokens>, RuntimeError> {
        let queue = &self.worker.queue;
        queue.at_barrier(self.slot, move |member| member.top_tokens(&rows, support)).await
    }

    async fn reference_support_tokens(
        &self,
        rows: Vec<Row>,
        support: Support,
    ) -> Result<Vec<TopTokens>, RuntimeError> {
        let queue = &self.worker.queue;
        queue.at_barrier(self.slot, move |member| member.reference_top_tokens(&rows, support)).await
    }

    /// Returns an error if a row cannot be scored, or has another number of given tokens in each place than the first.
    fn check_given(&self, rows: &[Row]) -> Result<(), RuntimeError> {
        self.check(rows)?;
        let width = |row: &Row| row.teacher.as_ref().map(|of| of.ids.len() / row.completion.len());
        let first = rows.first().and_then(width);
        let wrong = rows.iter().position(|row| width(row).is_none() || width(row) != first);
        wrong.map_or(Ok(()), |index| {
            let message = format!("row {index} has no tokens to be scored, or fewer than others");
            Err(self.failed_worker(ModelError::wrong_argument(message)))
        })
    }
}

//! Log-probs of the prompt of a request that watches them.

use super::slot::Slot;
use crate::model::{Model, ModelError, Pool};

/// Maximum number of rows whose logits are in memory at once.
const ROWS: usize = 64;

impl Slot {
    /// Returns true if log-probs of the prompt are still to be sent.
    pub(super) fn reads_prompt(&self) -> bool {
        let echo = self.watch.as_ref().is_some_and(|watch| watch.echo());
        echo && self.echoed + 1 < self.tokens.len() - self.sampled()
    }

    /// Sends the log-probs of the prompt's tokens that follow those of this pass, given its hidden states. A preempted
    /// request computes tokens again; theirs were sent before.
    pub(super) fn echo(
        &mut self,
        hidden: &[f32],
        model: &Model,
        pool: &mut Pool,
    ) -> Result<(), ModelError> {
        if !self.reads_prompt() {
            return Ok(());
        }
        let Some(watch) = &self.watch else { return Ok(()) };
        let (width, vocab) = (model.config.hidden_size, model.config.vocab_size);
        let prompt = self.tokens.len() - self.logprobs.len();
        for (index, chunk) in hidden.chunks(ROWS * width).enumerate() {
            let logits = model.decoder.logits(chunk, pool);
            for (row, logits) in logits.chunks_exact(vocab).enumerate() {
                let next = self.table.len + index * ROWS + row + 1;
                if next == self.echoed + 1 && next < prompt {
                    watch.given(self.tokens[next], logits, self.sampling.temperature)?;
                    self.echoed = next;
                }
            }
            pool.give([logits]);
        }
        Ok(())
    }
}

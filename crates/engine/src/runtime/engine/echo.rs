//! Log-probs of the prompt of a request that watches them.

use std::ops::Range;

use super::slot::RequestSlot;
use crate::files::ModelError;
use crate::net::ops::Backend;
use crate::net::{Model, Pool};

/// Maximum number of rows whose logits are in memory at once.
const ROWS: usize = 64;

impl RequestSlot {
    /// Returns true if log-probs of the prompt are still to be sent.
    pub(super) fn reads_prompt(&self) -> bool {
        let echo = self.watch.as_ref().is_some_and(|watch| watch.echo());
        echo && self.echoed + 1 < self.tokens.len() - self.sampled_tokens()
    }

    /// Sends the log-probs of the prompt's tokens that follow those of this pass, given the hidden states in its rows of a
    /// pass. A preempted
    /// request computes tokens again; theirs were sent before.
    pub(super) fn echo<O: Backend>(
        &mut self,
        hidden: &O::Act,
        rows: Range<u32>,
        model: &Model<O>,
        pool: &mut Pool<O>,
    ) -> Result<(), ModelError> {
        if !self.reads_prompt() {
            return Ok(());
        }
        let Some(watch) = &self.watch else { return Ok(()) };
        let vocab = model.config.vocab_size;
        let prompt = self.tokens.len() - self.logprobs.len();
        let rows: Vec<u32> = rows.collect();
        for (index, chunk) in rows.chunks(ROWS).enumerate() {
            let logits = model.decoder.read_logits(hidden, chunk, pool)?;
            for (row, logits) in logits.chunks_exact(vocab).enumerate() {
                let next = self.table.len + index * ROWS + row + 1;
                if next == self.echoed + 1 && next < prompt {
                    watch.send_given(self.tokens[next], logits, self.sampling.temperature)?;
                    self.echoed = next;
                }
            }
        }
        Ok(())
    }
}

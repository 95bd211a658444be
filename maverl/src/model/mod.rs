//! Models and tokenizers, read from Hugging Face directories.

use crate::trajectory::Message;

/// A tokenizer with its chat template.
pub struct Tokenizer {}

/// Why a tokenizer or template failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct TokenizerError(
    /// What happened.
    pub String,
);

impl Tokenizer {
    /// Ids of a text, special tokens in it recognized, none added.
    ///
    /// # Errors
    ///
    /// If the tokenizer cannot encode it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let _ = text;
        unreachable!()
    }

    /// Text of ids, special tokens left out.
    pub fn decode(&self, ids: &[u32]) -> String {
        let _ = ids;
        unreachable!()
    }

    /// Text of ids, special tokens kept.
    pub fn decode_raw(&self, ids: &[u32]) -> String {
        let _ = ids;
        unreachable!()
    }

    /// Renders a conversation with the chat template; `generation_prompt` opens the assistant's next turn.
    ///
    /// # Errors
    ///
    /// If the model has no chat template, or the template fails or raises.
    pub fn render(
        &self,
        messages: &[Message],
        generation_prompt: bool,
    ) -> Result<String, TokenizerError> {
        let _ = (messages, generation_prompt);
        unreachable!()
    }

    /// Ids that end a reply: those of `generation_config.json`, else the tokenizer's end of sequence.
    pub fn stop_ids(&self) -> &[u32] {
        unreachable!()
    }
}

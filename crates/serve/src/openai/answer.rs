//! Parts that answers of several routes have: the whole answer, its identity, and numbers of tokens.

use serde::{Deserialize, Serialize};

use super::origin::AnswerOrigin;

/// A whole answer with choices of a route.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ChoicesAnswer<C> {
    pub(crate) id: String,
    pub(crate) object: AnswerObject,
    pub(crate) created: u64,
    pub(crate) model: String,
    pub(crate) choices: Vec<C>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) system_fingerprint: Option<String>,
    pub(crate) usage: TokenUsage,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) maverl: Option<AnswerOrigin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_token_ids: Option<Vec<u32>>,
}

/// Form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AnswerObject {
    #[serde(rename = "chat.completion")]
    Chat,
    #[serde(rename = "chat.completion.chunk")]
    ChatChunk,
    /// A text completion, whole or in chunks.
    #[serde(rename = "text_completion")]
    Text,
}

/// Identity of an answer, the same in all its chunks.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
    pub(crate) system_fingerprint: Option<String>,
}

/// Fields beside the choices: at the end of a whole answer, and in chunks of a stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extra {
    pub(crate) maverl: Option<AnswerOrigin>,
    pub(crate) prompt_token_ids: Option<Vec<u32>>,
}

/// Reason why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FinishReason {
    Stop,
    Length,
    ToolCalls,
}

/// Numbers of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenUsage {
    pub(crate) prompt_tokens: usize,
    pub(crate) completion_tokens: usize,
    pub(crate) total_tokens: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_tokens_details: Option<CachedTokens>,
}

/// Prompt tokens by where they came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CachedTokens {
    pub(crate) cached_tokens: usize,
}

impl TokenUsage {
    pub(crate) fn new(prompt: usize, completion: usize) -> Self {
        Self {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: prompt + completion,
            prompt_tokens_details: None,
        }
    }
}

/// Part of a choice.
pub(crate) trait ChoicePart: Sized {
    /// Choice of a whole answer.
    type Choice: Serialize + Send;

    /// Returns the index of the choice.
    fn index(&self) -> usize;

    /// Creates a choice without parts.
    fn choice(index: usize) -> Self::Choice;

    /// Adds the part to its choice.
    fn add_to(self, choice: &mut Self::Choice);
}

/// Part of a choice as a chunk of a stream has it.
pub(crate) trait ChunkChoice: ChoicePart {
    /// Form of a whole answer.
    const OBJECT: AnswerObject;

    /// Returns a chunk. Its `usage` is left out, `null`, or the numbers.
    fn chunk(
        header: &Header,
        choices: Vec<Self>,
        usage: Option<Option<TokenUsage>>,
        extra: Extra,
    ) -> impl Serialize + Send + Sync;
}

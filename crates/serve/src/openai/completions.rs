//! Answers to requests for text completions: whole ones, and the chunks of a stream.

use serde::Serialize;
use serde_json::Value;

use super::answer::{
    AnswerObject, ChoicePart, ChoicesAnswer, ChunkChoice, Extra, FinishReason, Header, TokenUsage,
};
use super::origin::AnswerOrigin;
use super::tokens::TextLogprobs;

/// A whole answer.
pub(crate) type TextCompletion = ChoicesAnswer<TextChoice>;

/// A choice of an answer, or its part in a chunk.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct TextChoice {
    pub(crate) index: usize,
    pub(crate) text: String,
    pub(crate) logprobs: Option<TextLogprobs>,
    pub(crate) finish_reason: Option<FinishReason>,
    /// Cause of the end of a reply: `null` if it ended by itself. A server that does not know leaves it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stop_reason: Option<Option<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_token_ids: Option<Vec<u32>>,
}

impl ChoicePart for TextChoice {
    type Choice = Self;

    fn index(&self) -> usize {
        self.index
    }

    fn choice(index: usize) -> Self {
        Self { index, ..Self::default() }
    }

    fn add_to(self, choice: &mut Self) {
        choice.text.push_str(&self.text);
        if let Some(more) = self.logprobs {
            choice.logprobs.get_or_insert_default().append(more);
        }
        if let Some(more) = self.token_ids {
            choice.token_ids.get_or_insert_default().extend(more);
        }
        choice.finish_reason = self.finish_reason.or(choice.finish_reason);
        choice.stop_reason = self.stop_reason.or(choice.stop_reason.take());
        choice.prompt_token_ids = self.prompt_token_ids.or(choice.prompt_token_ids.take());
    }
}

impl ChunkChoice for TextChoice {
    const OBJECT: AnswerObject = AnswerObject::Text;

    fn chunk(
        header: &Header,
        choices: Vec<Self>,
        usage: Option<Option<TokenUsage>>,
        extra: Extra,
    ) -> impl Serialize + Send + Sync {
        TextChunk {
            id: &header.id,
            object: AnswerObject::Text,
            created: header.created,
            model: &header.model,
            choices,
            system_fingerprint: header.system_fingerprint.as_deref(),
            prompt_token_ids: extra.prompt_token_ids,
            maverl: extra.maverl,
            usage,
        }
    }
}

/// A part of an answer in a stream.
#[derive(Debug, Serialize)]
struct TextChunk<'a> {
    id: &'a str,
    object: AnswerObject,
    created: u64,
    model: &'a str,
    choices: Vec<TextChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_fingerprint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    maverl: Option<AnswerOrigin>,
    /// `null` before the last chunk if the client asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<TokenUsage>>,
}

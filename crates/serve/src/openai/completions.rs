//! Answers to requests for text completions: whole ones, and the chunks of a stream.

use serde::Serialize;
use serde_json::Value;

use super::chat::{FinishReason, Usage};
use super::origin::Origin;
use super::tokens::TextLogprobs;
use super::writer::Header;

/// A whole answer.
#[derive(Debug, Serialize)]
pub(crate) struct TextCompletion {
    pub(crate) id: String,
    pub(crate) object: TextObject,
    pub(crate) created: u64,
    pub(crate) model: String,
    pub(crate) choices: Vec<TextChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) system_fingerprint: Option<String>,
    pub(crate) usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) maverl: Option<Origin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_token_ids: Option<Vec<u32>>,
}

/// Form of an answer, whole or in chunks.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TextObject {
    TextCompletion,
}

/// A choice of an answer, or its part in a chunk.
#[derive(Debug, Clone, Serialize)]
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

/// A part of an answer in a stream.
#[derive(Debug, Serialize)]
pub(crate) struct TextChunk<'a> {
    pub(crate) id: &'a str,
    pub(crate) object: TextObject,
    pub(crate) created: u64,
    pub(crate) model: &'a str,
    pub(crate) choices: Vec<TextChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) system_fingerprint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_token_ids: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) maverl: Option<Origin>,
    /// `null` before the last chunk if the client asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Option<Usage>>,
}

impl<'a> TextChunk<'a> {
    /// Creates a chunk with these choices alone.
    pub(crate) fn new(header: &'a Header, choices: Vec<TextChoice>) -> Self {
        Self {
            id: &header.id,
            object: TextObject::TextCompletion,
            created: header.created,
            model: &header.model,
            choices,
            system_fingerprint: header.system_fingerprint.as_deref(),
            prompt_token_ids: None,
            maverl: None,
            usage: None,
        }
    }
}

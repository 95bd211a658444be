//! Answers: a chat completion in the form of a message.

use maverl::trajectory::Role;
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::content::tool_use_id;
use crate::openai::answer::{FinishReason, TokenUsage};
use crate::openai::chat::{ChatChoice, ChatCompletion, Delta, ToolCall};
use crate::openai::origin::AnswerOrigin;

/// An answer.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct MessageAnswer {
    id: String,
    r#type: MessageTag,
    role: Role,
    model: String,
    content: Vec<ContentBlock>,
    #[serde(flatten)]
    end: MessageEnd,
    usage: MessageUsage,
    #[serde(skip_serializing_if = "Option::is_none")]
    maverl: Option<MessageOrigin>,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum MessageTag {
    Message,
}

/// A block of the content.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ContentBlock {
    Thinking { thinking: String, signature: String },
    Text { text: String },
    ToolUse { id: String, name: String, input: Map<String, Value> },
}

/// Cause of the end of a reply; none while it goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct MessageEnd {
    pub(super) stop_reason: Option<StopReason>,
    pub(super) stop_sequence: Option<String>,
}

/// Reason why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StopReason {
    EndTurn,
    MaxTokens,
    StopSequence,
    ToolUse,
    /// The reply ended with the context, before it had as many tokens as it was allowed.
    ModelContextWindowExceeded,
}

/// Numbers of tokens.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct MessageUsage {
    /// Tokens of the prompt that were not in the cache.
    input_tokens: usize,
    cache_creation_input_tokens: usize,
    cache_read_input_tokens: usize,
    output_tokens: usize,
}

/// The field `maverl`, which Anthropic's protocol does not have.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct MessageOrigin {
    #[serde(flatten)]
    pub(crate) origin: Option<AnswerOrigin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_token_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_ids: Option<Vec<u32>>,
}

/// Answer to a request for the number of tokens of a prompt.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct TokenCount {
    pub(crate) input_tokens: usize,
}

impl From<TokenUsage> for MessageUsage {
    fn from(usage: TokenUsage) -> Self {
        let cached = usage.prompt_tokens_details.map_or(0, |prompt| prompt.cached_tokens);
        Self {
            input_tokens: usage.prompt_tokens.saturating_sub(cached),
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: cached,
            output_tokens: usage.completion_tokens,
        }
    }
}

impl MessageEnd {
    /// Returns the end of a choice. `length` is the reason of one that was cut.
    pub(super) fn of_choice(
        reason: Option<FinishReason>,
        stop: Option<&Value>,
        length: StopReason,
    ) -> Self {
        let stop_sequence = stop.and_then(Value::as_str).map(str::to_owned);
        let stop_reason = match reason {
            None => None,
            Some(FinishReason::Length) => Some(length),
            Some(FinishReason::ToolCalls) => Some(StopReason::ToolUse),
            Some(FinishReason::Stop) if stop_sequence.is_some() => Some(StopReason::StopSequence),
            Some(FinishReason::Stop) => Some(StopReason::EndTurn),
        };
        Self { stop_reason, stop_sequence }
    }
}

impl MessageAnswer {
    /// Creates an answer before its reply. `usage` has the numbers of the prompt.
    pub(crate) fn begun(
        id: String,
        model: String,
        usage: TokenUsage,
        maverl: Option<MessageOrigin>,
    ) -> Self {
        Self {
            id,
            r#type: MessageTag::Message,
            role: Role::Assistant,
            model,
            content: Vec::new(),
            end: MessageEnd::default(),
            usage: TokenUsage { completion_tokens: 0, ..usage }.into(),
            maverl,
        }
    }

    /// Returns a chat completion, of which a message has one choice, before its reply.
    pub(crate) fn begun_chat(chat: &ChatCompletion) -> Self {
        let prompt_token_ids = chat.prompt_token_ids.clone();
        let maverl =
            MessageOrigin { origin: chat.maverl.clone(), prompt_token_ids, token_ids: None };
        Self::begun(chat.id.clone(), chat.model.clone(), chat.usage, Some(maverl))
    }

    /// Returns a chat completion in the form of a message. `length` is the reason of a reply that was cut.
    pub(crate) fn of_chat(chat: &ChatCompletion, length: StopReason) -> Self {
        let begun = Self::begun_chat(chat);
        let Some(choice) = chat.choices.first() else { return begun };
        let stop = choice.stop_reason.as_ref().and_then(Option::as_ref);
        Self {
            content: content(choice),
            end: MessageEnd::of_choice(choice.finish_reason, stop, length),
            usage: chat.usage.into(),
            maverl: begun
                .maverl
                .map(|maverl| MessageOrigin { token_ids: choice.token_ids.clone(), ..maverl }),
            ..begun
        }
    }
}

/// Returns the blocks of a reply, its thoughts, texts and calls in their order. One without calls has a text, be it empty.
fn content(choice: &ChatChoice) -> Vec<ContentBlock> {
    let mut blocks = Vec::new();
    for Delta { content, reasoning_content, tool_calls, .. } in choice.ordered_deltas() {
        let thoughts = reasoning_content.map(|thinking| {
            let signature = signature(&thinking);
            ContentBlock::Thinking { thinking, signature }
        });
        blocks.extend(thoughts);
        blocks.extend(content.map(|text| ContentBlock::Text { text }));
        blocks.extend(tool_calls.iter().map(tool_use));
    }
    if blocks.iter().all(|block| matches!(block, ContentBlock::Thinking { .. })) {
        blocks.push(ContentBlock::Text { text: String::new() });
    }
    blocks
}

/// Returns a call as a block.
fn tool_use(call: &ToolCall) -> ContentBlock {
    // Arguments of a call that was read are an object.
    let input = serde_json::from_str(&call.function.arguments).unwrap_or_default();
    ContentBlock::ToolUse { id: tool_use_id(&call.id), name: call.function.name.clone(), input }
}

impl ContentBlock {
    /// Returns the block of a call before its input.
    pub(super) fn begun_call(call: &ToolCall) -> Self {
        let (id, name) = (tool_use_id(&call.id), call.function.name.clone());
        Self::ToolUse { id, name, input: Map::new() }
    }
}

/// Returns the signature of thoughts, which clients send back and nobody checks: 16 bytes of their SHA-256.
pub(super) fn signature(thoughts: &str) -> String {
    let digest = Sha256::digest(thoughts);
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

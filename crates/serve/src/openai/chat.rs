//! Answers to requests for chat completions: whole ones, and the chunks of a stream.

use maverl::tools::Call;
use maverl::trajectory::Role;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::calls::call_id;
use super::origin::Origin;
use super::tokens::TokenLogprob;

/// A whole answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ChatCompletion {
    pub(crate) id: String,
    pub(crate) object: ChatObject,
    pub(crate) created: u64,
    pub(crate) model: String,
    pub(crate) choices: Vec<ChatChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) system_fingerprint: Option<String>,
    pub(crate) usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) maverl: Option<Origin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_token_ids: Option<Vec<u32>>,
}

/// Form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ChatObject {
    #[serde(rename = "chat.completion")]
    Completion,
    #[serde(rename = "chat.completion.chunk")]
    Chunk,
}

/// A choice of a whole answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ChatChoice {
    pub(crate) index: usize,
    pub(crate) message: ReplyMessage,
    pub(crate) logprobs: Option<ChatLogprobs>,
    pub(crate) finish_reason: Option<FinishReason>,
    /// Cause of the end of a reply: `null` if it ended by itself. A server that does not know leaves it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stop_reason: Option<Option<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_ids: Option<Vec<u32>>,
}

/// Message of a reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ReplyMessage {
    pub(crate) role: Role,
    /// `null` if the reply has calls alone.
    pub(crate) content: Option<String>,
    #[serde(default)]
    pub(crate) refusal: (),
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_content: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<ToolCall>,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolCall {
    pub(crate) id: String,
    pub(crate) r#type: ToolKind,
    pub(crate) function: FunctionCall,
    /// Index among the calls of the reply, in a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<usize>,
}

/// Type of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolKind {
    Function,
}

/// Name of a function, and its arguments as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FunctionCall {
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl ToolCall {
    /// Creates call `index` of a reply with a seed. Equal requests have equal ids.
    pub(crate) fn new(seed: u64, index: usize, call: &Call) -> Self {
        let arguments = Value::Object(call.arguments.clone()).to_string();
        let function = FunctionCall { name: call.name.clone(), arguments };
        let id = call_id(seed, index);
        Self { id, r#type: ToolKind::Function, function, index: Some(index) }
    }
}

/// Reason why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FinishReason {
    Stop,
    Length,
    ToolCalls,
}

/// Log-probs of the tokens of a reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ChatLogprobs {
    pub(crate) content: Vec<TokenLogprob>,
    #[serde(default)]
    pub(crate) refusal: (),
}

/// Numbers of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: usize,
    pub(crate) completion_tokens: usize,
    pub(crate) total_tokens: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_tokens_details: Option<PromptTokens>,
}

/// Prompt tokens by where they came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PromptTokens {
    pub(crate) cached_tokens: usize,
}

impl Usage {
    pub(crate) fn new(prompt: usize, completion: usize) -> Self {
        Self {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: prompt + completion,
            prompt_tokens_details: None,
        }
    }
}

/// A part of an answer in a stream.
#[derive(Debug, Serialize)]
pub(crate) struct ChatChunk<'a> {
    pub(crate) id: &'a str,
    pub(crate) object: ChatObject,
    pub(crate) created: u64,
    pub(crate) model: &'a str,
    pub(crate) choices: Vec<ChunkChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) system_fingerprint: Option<&'a str>,
    /// `null` in all chunks but the last one if the client asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Option<Usage>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) maverl: Option<Origin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_token_ids: Option<Vec<u32>>,
}

/// A choice of a chunk.
#[derive(Debug, Serialize)]
pub(crate) struct ChunkChoice {
    pub(crate) index: usize,
    pub(crate) delta: Delta,
    pub(crate) logprobs: Option<ChatLogprobs>,
    pub(crate) finish_reason: Option<FinishReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stop_reason: Option<Option<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_ids: Option<Vec<u32>>,
}

impl ChunkChoice {
    /// Creates a choice that goes on.
    pub(crate) fn new(index: usize, delta: Delta, tokens: PartTokens) -> Self {
        let PartTokens { logprobs, ids } = tokens;
        let (finish_reason, stop_reason) = Default::default();
        Self { index, delta, logprobs, finish_reason, stop_reason, token_ids: ids }
    }
}

/// Part of a choice's message that a chunk adds.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<Role>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<ToolCall>,
}

impl Delta {
    /// Begins a message.
    pub(crate) fn first() -> Self {
        Self { role: Some(Role::Assistant), ..Self::content(String::new()) }
    }

    pub(crate) fn content(text: String) -> Self {
        Self { content: Some(text), ..Self::default() }
    }

    pub(crate) fn reasoning(text: String) -> Self {
        Self { reasoning_content: Some(text), ..Self::default() }
    }

    pub(crate) fn call(call: ToolCall) -> Self {
        Self { tool_calls: vec![call], ..Self::default() }
    }
}

/// End of a choice.
#[derive(Debug, Clone)]
pub(crate) struct ChoiceEnd {
    pub(crate) reason: FinishReason,
    /// See [`ChatChoice::stop_reason`].
    pub(crate) stop: Option<Option<Value>>,
    /// Token ids that no part had.
    pub(crate) token_ids: Option<Vec<u32>>,
}

impl ChatChoice {
    /// Creates a choice whose reply is empty.
    pub(crate) fn new(index: usize) -> Self {
        let message = ReplyMessage {
            role: Role::Assistant,
            content: Some(String::new()),
            refusal: (),
            reasoning_content: None,
            tool_calls: Vec::new(),
        };
        let (logprobs, finish_reason, stop_reason, token_ids) = Default::default();
        Self { index, message, logprobs, finish_reason, stop_reason, token_ids }
    }

    /// Adds a part to the reply.
    pub(crate) fn add(&mut self, delta: Delta) {
        let message = &mut self.message;
        for (text, more) in [
            (&mut message.content, delta.content),
            (&mut message.reasoning_content, delta.reasoning_content),
        ] {
            if let Some(more) = more {
                text.get_or_insert_default().push_str(&more);
            }
        }
        let calls = delta.tool_calls.into_iter();
        message.tool_calls.extend(calls.map(|call| ToolCall { index: None, ..call }));
    }

    /// Adds the tokens of a part.
    pub(crate) fn add_tokens(&mut self, tokens: PartTokens) {
        if let Some(more) = tokens.logprobs {
            match &mut self.logprobs {
                Some(logprobs) => logprobs.content.extend(more.content),
                None => self.logprobs = Some(more),
            }
        }
        if let Some(more) = tokens.ids {
            self.token_ids.get_or_insert_default().extend(more);
        }
    }

    /// Ends the reply.
    pub(crate) fn end(&mut self, end: ChoiceEnd) {
        let message = &mut self.message;
        if !message.tool_calls.is_empty() {
            message.content.take_if(|content| content.is_empty());
        }
        self.finish_reason = Some(end.reason);
        self.stop_reason = end.stop;
        self.token_ids = self.token_ids.take().or(end.token_ids);
    }

    /// Returns the parts of the reply as a stream has them.
    pub(crate) fn deltas(&self) -> Vec<Delta> {
        let ReplyMessage { content, reasoning_content, tool_calls, .. } = &self.message;
        let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let calls = tool_calls.iter().enumerate();
        let calls = calls.map(|(i, call)| ToolCall { index: Some(i), ..call.clone() });
        let texts = text(reasoning_content).map(Delta::reasoning).into_iter();
        texts.chain(text(content).map(Delta::content)).chain(calls.map(Delta::call)).collect()
    }
}

/// Tokens of a part of a reply, as far as they are reported.
#[derive(Debug, Default)]
pub(crate) struct PartTokens {
    pub(crate) logprobs: Option<ChatLogprobs>,
    pub(crate) ids: Option<Vec<u32>>,
}

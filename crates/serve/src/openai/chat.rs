//! Answers to requests for chat completions: whole ones, and the chunks of a stream.

use maverl::tools::Call;
use maverl::trajectory::Role;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::{
    AnswerObject, ChoicePart, ChoicesAnswer, ChunkChoice, Extra, FinishReason, Header, TokenUsage,
};
use super::calls::call_id;
use super::origin::AnswerOrigin;
use super::tokens::TokenLogprob;

/// A whole answer.
pub(crate) type ChatCompletion = ChoicesAnswer<ChatChoice>;

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
    /// Parts of the message in the order in which the reply has them, for protocols that keep it. Those of a message that was
    /// read have no order.
    #[serde(skip)]
    deltas: Vec<Delta>,
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

/// Log-probs of the tokens of a reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ChatLogprobs {
    pub(crate) content: Vec<TokenLogprob>,
    #[serde(default)]
    pub(crate) refusal: (),
}

/// A part of an answer in a stream.
#[derive(Debug, Serialize)]
pub(crate) struct ChatChunk<'a> {
    pub(crate) id: &'a str,
    pub(crate) object: AnswerObject,
    pub(crate) created: u64,
    pub(crate) model: &'a str,
    pub(crate) choices: Vec<ChatChunkChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) system_fingerprint: Option<&'a str>,
    /// `null` in all chunks but the last one if the client asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Option<TokenUsage>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) maverl: Option<AnswerOrigin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_token_ids: Option<Vec<u32>>,
}

/// A choice of a chunk.
#[derive(Debug, Serialize)]
pub(crate) struct ChatChunkChoice {
    pub(crate) index: usize,
    pub(crate) delta: Delta,
    pub(crate) logprobs: Option<ChatLogprobs>,
    pub(crate) finish_reason: Option<FinishReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stop_reason: Option<Option<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_ids: Option<Vec<u32>>,
}

impl ChatChunkChoice {
    /// Creates a part that goes on.
    pub(crate) fn new(index: usize, delta: Delta, tokens: PartTokens) -> Self {
        let PartTokens { logprobs, ids } = tokens;
        let (finish_reason, stop_reason) = Default::default();
        Self { index, delta, logprobs, finish_reason, stop_reason, token_ids: ids }
    }

    /// Begins a message.
    pub(crate) fn first(index: usize) -> Self {
        let delta = Delta { role: Some(Role::Assistant), ..Delta::content(String::new()) };
        Self::new(index, delta, PartTokens::default())
    }

    /// Ends a reply. See [`ChatChoice::stop_reason`].
    pub(crate) fn end(index: usize, reason: FinishReason, stop: Option<Option<Value>>) -> Self {
        let part = Self::new(index, Delta::default(), PartTokens::default());
        Self { finish_reason: Some(reason), stop_reason: stop, ..part }
    }
}

impl ChoicePart for ChatChunkChoice {
    type Choice = ChatChoice;

    fn index(&self) -> usize {
        self.index
    }

    fn choice(index: usize) -> ChatChoice {
        let message = ReplyMessage {
            role: Role::Assistant,
            content: Some(String::new()),
            refusal: (),
            reasoning_content: None,
            tool_calls: Vec::new(),
        };
        let (logprobs, finish_reason, stop_reason, token_ids, deltas) = Default::default();
        ChatChoice { index, message, logprobs, finish_reason, stop_reason, token_ids, deltas }
    }

    fn add_to(self, choice: &mut ChatChoice) {
        self.delta.append_to(&mut choice.deltas);
        let message = &mut choice.message;
        for (text, more) in [
            (&mut message.content, self.delta.content),
            (&mut message.reasoning_content, self.delta.reasoning_content),
        ] {
            if let Some(more) = more {
                text.get_or_insert_default().push_str(&more);
            }
        }
        let calls = self.delta.tool_calls.into_iter();
        message.tool_calls.extend(calls.map(|call| ToolCall { index: None, ..call }));
        if let Some(more) = self.logprobs {
            match &mut choice.logprobs {
                Some(logprobs) => logprobs.content.extend(more.content),
                None => choice.logprobs = Some(more),
            }
        }
        if let Some(more) = self.token_ids {
            choice.token_ids.get_or_insert_default().extend(more);
        }
        if self.finish_reason.is_some() {
            if !message.tool_calls.is_empty() {
                message.content.take_if(|content| content.is_empty());
            }
            (choice.finish_reason, choice.stop_reason) = (self.finish_reason, self.stop_reason);
        }
    }
}

impl ChunkChoice for ChatChunkChoice {
    const OBJECT: AnswerObject = AnswerObject::Chat;

    fn chunk(
        header: &Header,
        choices: Vec<Self>,
        usage: Option<Option<TokenUsage>>,
        extra: Extra,
    ) -> impl Serialize + Send + Sync {
        ChatChunk {
            id: &header.id,
            object: AnswerObject::ChatChunk,
            created: header.created,
            model: &header.model,
            choices,
            system_fingerprint: header.system_fingerprint.as_deref(),
            usage,
            maverl: extra.maverl,
            prompt_token_ids: extra.prompt_token_ids,
        }
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
    pub(crate) fn content(text: String) -> Self {
        Self { content: Some(text), ..Self::default() }
    }

    pub(crate) fn reasoning(text: String) -> Self {
        Self { reasoning_content: Some(text), ..Self::default() }
    }

    pub(crate) fn call(call: ToolCall) -> Self {
        Self { tool_calls: vec![call], ..Self::default() }
    }

    /// Adds the delta to others. Texts of one kind that follow each other become one.
    fn append_to(&self, deltas: &mut Vec<Self>) {
        let thoughts = filled_text(self.reasoning_content.as_deref()).map(Self::reasoning);
        let text = filled_text(self.content.as_deref()).map(Self::content);
        let calls = self.tool_calls.iter().cloned().map(Self::call);
        for part in thoughts.into_iter().chain(text).chain(calls) {
            match deltas.last_mut() {
                Some(Self { content: Some(text), .. }) if part.content.is_some() => {
                    text.push_str(&part.content.unwrap_or_default());
                }
                Some(Self { reasoning_content: Some(text), .. })
                    if part.reasoning_content.is_some() =>
                {
                    text.push_str(&part.reasoning_content.unwrap_or_default());
                }
                _ => deltas.push(part),
            }
        }
    }
}

impl ChatChoice {
    /// Returns the parts of the message in their order: as the reply has them, or thoughts, text and calls.
    pub(crate) fn ordered_deltas(&self) -> Vec<Delta> {
        if !self.deltas.is_empty() {
            return self.deltas.clone();
        }
        let ReplyMessage { content, reasoning_content, tool_calls, .. } = &self.message;
        let calls = tool_calls.iter().enumerate();
        let calls = calls.map(|(i, call)| ToolCall { index: Some(i), ..call.clone() });
        let texts = filled_text(reasoning_content.as_deref()).map(Delta::reasoning).into_iter();
        let texts = texts.chain(filled_text(content.as_deref()).map(Delta::content));
        texts.chain(calls.map(Delta::call)).collect()
    }

    /// Returns the parts of the choice as a stream has them. Token ids are in the last one.
    pub(crate) fn parts(&self) -> Vec<ChatChunkChoice> {
        let deltas = self.ordered_deltas().into_iter();
        let deltas =
            deltas.map(|delta| ChatChunkChoice::new(self.index, delta, PartTokens::default()));
        let reason = self.finish_reason.unwrap_or(FinishReason::Stop);
        let end = ChatChunkChoice::end(self.index, reason, self.stop_reason.clone());
        let end = ChatChunkChoice { token_ids: self.token_ids.clone(), ..end };
        let first = ChatChunkChoice::first(self.index);
        std::iter::once(first).chain(deltas).chain([end]).collect()
    }
}

/// Tokens of a part of a reply, as far as they are reported.
#[derive(Debug, Default)]
pub(crate) struct PartTokens {
    pub(crate) logprobs: Option<ChatLogprobs>,
    pub(crate) ids: Option<Vec<u32>>,
}

/// Returns a text unless it is empty.
pub(crate) fn filled_text(text: Option<&str>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}

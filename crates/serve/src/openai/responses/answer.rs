//! Answers: a chat completion in the form of a response.

use maverl::trajectory::Role;
use serde::Serialize;

use crate::openai::answer::{FinishReason, TokenUsage};
use crate::openai::chat::{ChatChoice, ChatCompletion};
use crate::openai::origin::AnswerOrigin;

/// An answer.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ResponsesAnswer {
    id: String,
    object: ResponseObject,
    created_at: u64,
    pub(super) status: ResponseStatus,
    error: (),
    incomplete_details: Option<Incomplete>,
    instructions: (),
    model: String,
    pub(super) output: Vec<ResponseItem>,
    parallel_tool_calls: bool,
    previous_response_id: (),
    store: bool,
    text: TextOptions,
    tool_choice: DemandedCalls,
    tools: [(); 0],
    metadata: Empty,
    pub(super) usage: Option<ResponseUsage>,
    maverl: Option<AnswerOrigin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum ResponseObject {
    Response,
}

/// Stage of an answer or of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResponseStatus {
    InProgress,
    Completed,
    Incomplete,
}

/// Reason why an answer is incomplete.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
enum Incomplete {
    MaxOutputTokens,
}

/// Form of the text.
#[derive(Debug, Clone, Copy, Serialize)]
struct TextOptions {
    format: TextFormat,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum TextFormat {
    Text,
}

/// Demand for calls.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum DemandedCalls {
    Auto,
}

/// An object without fields.
#[derive(Debug, Clone, Copy, Serialize)]
struct Empty {}

/// An item of the output.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ResponseItem {
    Reasoning {
        id: String,
        summary: [(); 0],
        content: [ReasoningText; 1],
    },
    Message {
        id: String,
        status: ResponseStatus,
        role: Role,
        content: Vec<OutputText>,
    },
    FunctionCall {
        id: String,
        status: ResponseStatus,
        call_id: String,
        name: String,
        arguments: String,
    },
}

impl ResponseItem {
    /// Returns the item before its content.
    pub(super) fn without_content(&self) -> Self {
        let mut begun = self.clone();
        match &mut begun {
            Self::Reasoning { .. } => {}
            Self::Message { status, content, .. } => {
                *status = ResponseStatus::InProgress;
                content.clear();
            }
            Self::FunctionCall { status, arguments, .. } => {
                *status = ResponseStatus::InProgress;
                arguments.clear();
            }
        }
        begun
    }
}

/// Thoughts of a reply.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename = "reasoning_text")]
pub(crate) struct ReasoningText {
    text: String,
}

/// Text of a reply.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename = "output_text")]
pub(crate) struct OutputText {
    pub(super) text: String,
    pub(super) annotations: [(); 0],
    pub(super) logprobs: [(); 0],
}

impl OutputText {
    pub(super) fn new(text: String) -> Self {
        Self { text, annotations: [], logprobs: [] }
    }
}

/// Numbers of tokens.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct ResponseUsage {
    input_tokens: usize,
    input_tokens_details: InputTokens,
    output_tokens: usize,
    output_tokens_details: OutputTokens,
    total_tokens: usize,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct InputTokens {
    cached_tokens: usize,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct OutputTokens {
    reasoning_tokens: usize,
}

impl From<TokenUsage> for ResponseUsage {
    fn from(usage: TokenUsage) -> Self {
        let cached_tokens = usage.prompt_tokens_details.map_or(0, |prompt| prompt.cached_tokens);
        Self {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputTokens { cached_tokens },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputTokens { reasoning_tokens: 0 },
            total_tokens: usage.total_tokens,
        }
    }
}

impl From<&ChatCompletion> for ResponsesAnswer {
    /// Returns an answer in the form of a response, which has one choice.
    fn from(chat: &ChatCompletion) -> Self {
        let choice = chat.choices.first();
        let cut = choice.is_some_and(|it| it.finish_reason == Some(FinishReason::Length));
        let status = if cut { ResponseStatus::Incomplete } else { ResponseStatus::Completed };
        Self {
            id: chat.id.clone(),
            object: ResponseObject::Response,
            created_at: chat.created,
            status,
            error: (),
            incomplete_details: cut.then_some(Incomplete::MaxOutputTokens),
            instructions: (),
            model: chat.model.clone(),
            output: choice.map(|choice| output(&chat.id, choice, status)).unwrap_or_default(),
            parallel_tool_calls: true,
            previous_response_id: (),
            store: false,
            text: TextOptions { format: TextFormat::Text },
            tool_choice: DemandedCalls::Auto,
            tools: [],
            metadata: Empty {},
            usage: Some(chat.usage.into()),
            maverl: chat.maverl.clone(),
            prompt_token_ids: chat.prompt_token_ids.clone(),
            token_ids: choice.and_then(|choice| choice.token_ids.clone()),
        }
    }
}

impl ResponsesAnswer {
    /// Returns the answer before its output.
    pub(super) fn without_output(&self) -> Self {
        let status = ResponseStatus::InProgress;
        Self { status, output: Vec::new(), usage: None, ..self.clone() }
    }
}

/// Returns the items of a reply: its thoughts, its text, and its calls.
fn output(id: &str, choice: &ChatChoice, status: ResponseStatus) -> Vec<ResponseItem> {
    let reply = &choice.message;
    let mut items = Vec::new();
    if let Some(thoughts) = &reply.reasoning_content {
        let content = [ReasoningText { text: thoughts.clone() }];
        items.push(ResponseItem::Reasoning { id: format!("rs_{id}"), summary: [], content });
    }
    let text = reply.content.clone().unwrap_or_default();
    if !text.is_empty() || reply.tool_calls.is_empty() {
        let content = vec![OutputText::new(text)];
        items.push(ResponseItem::Message {
            id: format!("msg_{id}"),
            status,
            role: Role::Assistant,
            content,
        });
    }
    items.extend(reply.tool_calls.iter().enumerate().map(|(i, call)| ResponseItem::FunctionCall {
        id: format!("fc_{id}_{i}"),
        status: ResponseStatus::Completed,
        call_id: call.id.clone(),
        name: call.function.name.clone(),
        arguments: call.function.arguments.clone(),
    }));
    items
}

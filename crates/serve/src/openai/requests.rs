//! Requests of the protocol: the fields of each, and those that several have.

use serde_json::{Map, Value};

use super::calls::Tools;
use super::fields::Fields;
use super::limits::{MOST_TOKENS, MOST_TOP};
use super::messages::Messages;
use super::options::{
    Choices, Echoed, EndFields, MaxTokens, SampledFields, Streaming, TextTop, TokenFields,
};
use super::request::{Nested, RequestField, TokenIds, Unused, request};
use crate::refusal::Refusal;

/// Maximum number of choices of a call of a program.
const MOST_CALL_CHOICES: usize = 8;

request! {
    /// A request for a chat completion.
    pub(crate) struct ChatRequest {
        messages: Messages,
        tools: Tools,
        response_format: Option<Value>,
        sampled: SampledFields,
        limit: MaxTokens,
        choices: Choices,
        streaming: Streaming,
        logprobs: bool,
        top_logprobs: Option<usize> [0, MOST_TOP],
        tokens: TokenFields,
        reasoning_effort: Option<String>,
        chat_template_kwargs: Option<Map<String, Value>>,
        modalities: Option<Value>,
    }
}

request! {
    /// A request for text completions.
    pub(crate) struct TextRequest {
        /// A text, a list of texts, a list of ids, or a list of such lists.
        prompt: Option<Value>,
        sampled: SampledFields,
        echoed: Echoed,
        choices: Choices,
        streaming: Streaming,
        logprobs: TextTop,
        tokens: TokenFields,
        add_special_tokens: Option<Value>,
    }
}

request! {
    /// A request for token ids.
    pub(crate) struct GenerateRequest {
        request_id: Option<String>,
        token_ids: TokenIds,
        stream: bool,
        sampling_params: Option<Nested<GenerateFields>>,
    }
}

request! {
    /// `sampling_params` of a request for token ids.
    pub(crate) struct GenerateFields {
        sampled: SampledFields,
        max_tokens: Option<usize> [1, MOST_TOKENS],
        choices: Choices,
        logprobs: TextTop,
        tokens: TokenFields,
    }
    // Forms of the answer of other servers; ids are returned in any case.
    Unused: detokenize, output_kind;
}

request! {
    /// A request for the ids of a text; without `prompt`, of a conversation.
    pub(crate) struct TokenizeRequest {
        return_token_strs: bool,
        add_special_tokens: Option<Value>,
        prompt: Option<String>,
    }
}

request! {
    /// Conversation of a request for its ids.
    pub(crate) struct TokenizeChat {
        messages: Messages,
        add_generation_prompt: Option<bool>,
        tools: Tools,
        chat_template_kwargs: Option<Map<String, Value>>,
    }
}

request! {
    /// A request for the text of ids.
    pub(crate) struct DetokenizeRequest {
        tokens: TokenIds,
    }
}

request! {
    /// A request for a response, as far as it differs from one for a chat completion.
    pub(crate) struct ResponseRequest {
        n: Option<Value>,
        instructions: Option<Value>,
        input: Option<Value>,
        max_output_tokens: Option<Value>,
        tools: Option<Value>,
        tool_choice: Option<Value>,
        reasoning: Option<Value>,
        text: Option<Value>,
        include: Option<Value>,
    }
    Stateless: previous_response_id, conversation, background, prompt;
    Unused: max_tool_calls, stream_options, client_metadata, top_logprobs;
}

request! {
    /// A request of a program for a text completion, as far as it differs from one for a chat completion.
    pub(crate) struct TextCallRequest {
        prompt: Option<Value>,
        echo: Option<Value>,
        logprobs: Option<Value>,
    }
}

request! {
    /// A request of a program for a chat completion.
    pub(crate) struct CallRequest {
        sampling: UnusedSampling,
        messages: Messages,
        tools: Tools,
        response_format: Option<Value>,
        ends: EndFields,
        limit: MaxTokens,
        n: Option<usize> [1, MOST_CALL_CHOICES],
        streaming: Streaming,
        return_token_ids: bool,
        logprobs: bool,
        chat_template_kwargs: Option<Value>,
    }
    Unused: modalities;
}

request! {
    /// A request to a team.
    pub(crate) struct TeamRequest {
        messages: Messages,
        temperature: Option<f64> [0.0, f64::from(f32::MAX)],
        top_p: Option<f64> [0.0, 1.0],
        limit: MaxTokens,
        choices: Choices,
        streaming: Streaming,
        maverl: Option<Nested<TeamFields>>,
    }
    NotOfTeams: tools, tool_choice, response_format, logprobs, top_logprobs, return_token_ids, stop, reasoning_effort;
}

request! {
    /// `maverl` of a request to a team.
    pub(crate) struct TeamFields {
        turns: bool,
        source: Option<String>,
        data: Option<Map<String, Value>>,
    }
}

request! {
    /// A request to load an adapter.
    pub(crate) struct LoadRequest {
        lora_name: Option<String>,
        lora_path: Option<String>,
    }
}

request! {
    /// A request to unload an adapter.
    pub(crate) struct UnloadRequest {
        lora_name: Option<String>,
    }
}

/// A field that would need a stored state, or a server that goes on by itself.
#[derive(Debug)]
pub(crate) struct Stateless;

impl RequestField for Stateless {
    fn read_field(fields: &mut Fields, name: &str) -> Result<Self, Refusal> {
        if fields.take(name).is_some_and(|value| value != false) {
            let what = "is given; nothing is stored here, so send everything as `input`";
            return Err(Refusal::unsupported_field(name, what));
        }
        Ok(Self)
    }
}

/// A field that a team does not have, beside those that no model has.
#[derive(Debug)]
pub(crate) struct NotOfTeams;

impl RequestField for NotOfTeams {
    fn read_field(fields: &mut Fields, name: &str) -> Result<Self, Refusal> {
        if fields.take(name).is_some_and(|value| !is_nothing(&value)) {
            let what =
                "is not for a team, whose agents have prompts and tools of their own; leave it out";
            return Err(Refusal::unsupported_field(name, what));
        }
        Ok(Self)
    }
}

/// Returns true for a value that asks for nothing.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Bool(asked) => !asked,
        Value::Array(list) => list.is_empty(),
        Value::String(word) => word == "none",
        Value::Number(number) => number.as_u64() == Some(0),
        other => other["type"] == "text",
    }
}

/// Name of the first field of sampling, which has no effect: the sampling of a seat is that of the run.
#[derive(Debug)]
pub(crate) struct UnusedSampling(pub(crate) Option<&'static str>);

impl RequestField for UnusedSampling {
    fn read_field(fields: &mut Fields, _: &str) -> Result<Self, Refusal> {
        let names = [
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "repetition_penalty",
            "seed",
            "reasoning_effort",
        ];
        let mut first = None;
        for name in names {
            let given = fields.take(name).map(|_| name);
            first = first.or(given);
        }
        Ok(Self(first))
    }
}

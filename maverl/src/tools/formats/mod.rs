//! Forms in which families of models write calls, one row for each.
//!
//! A row names the texts that begin a call, the tokens that it is written with, and its reader. Readers are few: JSON
//! objects (`json`), JSON arguments after a name (`named`), parameters in tags (`xml`), Python literals (`literal`), the
//! grammar of Gemma 4 (`gemma`) and the channels of gpt-oss (`channels`). Each reads a text once from the front, so its
//! time is linear in the length of a reply.

mod block;
mod canonical;
mod channels;
mod cursor;
mod gemma;
mod json;
mod literal;
mod named;
mod number;
mod probe;
mod reply;
mod thoughts;
mod typed;
mod xml;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tools::{Call, CallError};
pub use block::CallSegment;
use block::{CallBlock, find_opening};
use channels::read_channel_calls;
use gemma::read_gemma_calls;
use json::read_listed_calls;
pub use json::{TaggedCall, bare_calls, tagged_calls, whole_calls};
use literal::read_python_calls;
use named::NamedForm;
use xml::{XmlForm, read_glm_call};

pub use canonical::unreadable_call;
pub use channels::{Channel, ChannelHeader, ChannelPart, split_channels};
pub use probe::{TemplateCalls, template_calls};
pub use reply::ReplyFormat;
pub use thoughts::{ThoughtFormat, ThoughtTags};

/// Form in which a family of models writes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CallFormat {
    /// The form in which the chat template renders calls.
    #[default]
    Auto,
    /// `<tool_call>{"name": .., "arguments": {..}}</tool_call>`, any number of them: Qwen 2.5 and 3, Hermes.
    Hermes,
    /// The whole reply is `{"name": .., "parameters": {..}}`, optionally after `<|python_tag|>`; several are separated
    /// by `;` or a new line: Llama 3.
    Llama3Json,
    /// `<function=NAME>` with a `<parameter=KEY>` for each argument, usually in `<tool_call>`: Qwen 3.5, Qwen3-Coder.
    QwenXml,
    /// `[TOOL_CALLS] [{"name": .., "arguments": {..}}, ..]`: Mistral up to version 7 of its tokenizer.
    Mistral,
    /// `[TOOL_CALLS]NAME[ARGS]{..}`: Mistral from version 11 on.
    MistralV11,
    /// `[f(a=1, b="x"), g()]`, the whole reply, or in `<|tool_call_start|>` and `<|tool_call_end|>`: Llama 4, LFM2.
    Pythonic,
    /// `<|tool_call>call:NAME{key:<|"|>text<|"|>,n:42}<tool_call|>`: Gemma 4.
    Gemma4,
    /// `<tool_call>NAME` with `<arg_key>` and `<arg_value>` for each argument: GLM 4.5 to 5.
    Glm,
    /// `<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME` and fenced JSON: DeepSeek V3, R1.
    DeepseekV3,
    /// `<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{..}`: DeepSeek V3.1.
    DeepseekV31,
    /// `<｜DSML｜invoke name="..">` with a `<｜DSML｜parameter>` for each argument: DeepSeek V3.2 and 4.
    DeepseekDsml,
    /// `<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{..}<|tool_call_end|>`: Kimi K2.
    KimiK2,
    /// `<invoke name="..">` with a `<parameter name="..">` for each argument, in `<minimax:tool_call>`: MiniMax M2.
    MinimaxM2,
    /// `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{..}<|call|>`: gpt-oss.
    Harmony,
}

/// Reader of the calls at the beginning of a text, which starts with an opening of the row.
type BlockReader = fn(&str, &[Value]) -> CallBlock;

/// A form of calls.
struct FormatRow {
    format: CallFormat,
    /// Texts that begin a call. All have the same first character.
    openings: &'static [&'static str],
    /// First characters of an answer that is a call without an opening.
    bare: &'static [&'static str],
    /// Tokens of the form: those that are special in a vocabulary belong to the text of a reply.
    tokens: &'static [&'static str],
    read: BlockReader,
}

/// The forms whose calls have a reader of blocks. Those of Hermes and Llama 3 are read by `json` alone.
const ROWS: [FormatRow; 12] = [
    FormatRow {
        format: CallFormat::QwenXml,
        openings: &["<tool_call>", "<function="],
        bare: &[],
        tokens: &["<tool_call>", "</tool_call>"],
        read: |text, tools| XmlForm::QWEN.read_calls(text, tools),
    },
    FormatRow {
        format: CallFormat::Mistral,
        openings: &["[TOOL_CALLS]"],
        bare: &[],
        tokens: &["[TOOL_CALLS]"],
        read: |text, _| read_listed_calls(text, "[TOOL_CALLS]"),
    },
    FormatRow {
        format: CallFormat::MistralV11,
        openings: &["[TOOL_CALLS]"],
        bare: &[],
        tokens: &["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"],
        read: |text, _| NamedForm::MISTRAL.read_calls(text),
    },
    FormatRow {
        format: CallFormat::Pythonic,
        openings: &["<|tool_call_start|>", "<|python_start|>"],
        bare: &["["],
        tokens: &["<|tool_call_start|>", "<|tool_call_end|>", "<|python_start|>", "<|python_end|>"],
        read: |text, _| read_python_calls(text),
    },
    FormatRow {
        format: CallFormat::Gemma4,
        openings: &["<|tool_call>"],
        bare: &[],
        tokens: &["<|tool_call>", "<tool_call|>", "<|\"|>"],
        read: |text, _| read_gemma_calls(text),
    },
    FormatRow {
        format: CallFormat::Glm,
        openings: &["<tool_call>"],
        bare: &[],
        tokens: &[
            "<tool_call>",
            "</tool_call>",
            "<arg_key>",
            "</arg_key>",
            "<arg_value>",
            "</arg_value>",
        ],
        read: read_glm_call,
    },
    FormatRow {
        format: CallFormat::DeepseekV31,
        openings: &["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"],
        bare: &[],
        tokens: &DEEPSEEK,
        read: |text, _| NamedForm::DEEPSEEK_V31.read_calls(text),
    },
    FormatRow {
        format: CallFormat::DeepseekV3,
        openings: &["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"],
        bare: &[],
        tokens: &DEEPSEEK,
        read: |text, _| NamedForm::DEEPSEEK_V3.read_calls(text),
    },
    FormatRow {
        format: CallFormat::DeepseekDsml,
        openings: &["<｜DSML｜function_calls>", "<｜DSML｜tool_calls>", "<｜DSML｜invoke"],
        bare: &[],
        tokens: &["｜DSML｜"],
        read: |text, tools| XmlForm::DSML.read_calls(text, tools),
    },
    FormatRow {
        format: CallFormat::KimiK2,
        openings: &["<|tool_calls_section_begin|>", "<|tool_call_begin|>"],
        bare: &[],
        tokens: &[
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_end|>",
            "<|tool_call_begin|>",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
        ],
        read: |text, _| NamedForm::KIMI.read_calls(text),
    },
    FormatRow {
        format: CallFormat::MinimaxM2,
        openings: &["<minimax:tool_call>", "<invoke name="],
        bare: &[],
        tokens: &["<minimax:tool_call>", "</minimax:tool_call>"],
        read: |text, tools| XmlForm::MINIMAX.read_calls(text, tools),
    },
    FormatRow {
        format: CallFormat::Harmony,
        openings: &["<|channel|>", "<|start|>"],
        bare: &["to="],
        tokens: &[
            "<|start|>",
            "<|channel|>",
            "<|message|>",
            "<|constrain|>",
            "<|end|>",
            "<|call|>",
            "<|return|>",
        ],
        read: |text, _| read_channel_calls(text),
    },
];

/// Tokens of DeepSeek's forms up to V3.1.
const DEEPSEEK: [&str; 5] = [
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
];

impl CallFormat {
    /// Every form, in the order in which a template is asked.
    pub const ALL: [Self; 14] = [
        Self::Hermes,
        Self::Llama3Json,
        Self::QwenXml,
        Self::Mistral,
        Self::MistralV11,
        Self::Pythonic,
        Self::Gemma4,
        Self::Glm,
        Self::DeepseekV31,
        Self::DeepseekV3,
        Self::DeepseekDsml,
        Self::KimiK2,
        Self::MinimaxM2,
        Self::Harmony,
    ];

    /// Returns the name in configurations.
    pub fn name(self) -> String {
        serde_json::to_value(self)
            .ok()
            .and_then(|name| Some(name.as_str()?.to_owned()))
            .unwrap_or_default()
    }

    /// Returns true if calls are JSON objects in Hermes' tags or without tags, which [`read`] reads.
    pub fn is_json(self) -> bool {
        matches!(self, Self::Auto | Self::Hermes | Self::Llama3Json)
    }

    /// Returns the texts that begin a call.
    pub fn openings(self) -> &'static [&'static str] {
        self.row().map_or(&["<tool_call>"], |row| row.openings)
    }

    /// Returns the first characters of an answer that may be a call without an opening.
    pub fn bare_openings(self) -> &'static [&'static str] {
        self.row().map_or(&["{", "[", "```", "<|python_tag|>"], |row| row.bare)
    }

    /// Returns the tokens with which calls are written.
    pub fn tokens(self) -> &'static [&'static str] {
        match self {
            Self::Hermes => &["<tool_call>", "</tool_call>"],
            _ => self.row().map_or(&[], |row| row.tokens),
        }
    }

    fn row(self) -> Option<&'static FormatRow> {
        ROWS.iter().find(|row| row.format == self)
    }
}

/// Divides an answer, a reply without its thoughts, into texts and calls. The texts of all parts, one after the other,
/// are the answer. `tools` are declarations as [`Tool::declaration`](super::Tool::declaration) returns them; arguments
/// that a form writes as text get the types of their schemas.
///
/// Answers in forms of JSON ([`CallFormat::is_json`]) are one text here.
pub fn split_calls<'a>(
    answer: &'a str,
    format: CallFormat,
    tools: &[Value],
) -> Vec<CallSegment<'a>> {
    let Some(row) = format.row() else {
        return vec![CallSegment { text: answer, call: None }];
    };
    let mut segments = Vec::new();
    let mut rest = answer;
    let begin = answer.len() - answer.trim_start().len();
    if row.bare.iter().any(|bare| answer[begin..].starts_with(bare)) {
        let block = (row.read)(&answer[begin..], tools);
        if !block.calls.is_empty() {
            rest = &answer[begin + block.len..];
            push_text(&answer[..begin], &mut segments);
            segments.extend(block.segments(&answer[begin..]));
        }
    }
    while let Some(at) = find_opening(rest, row.openings) {
        let block = (row.read)(&rest[at..], tools);
        let (text, after) = rest[at..].split_at(block.len);
        push_text(&rest[..at], &mut segments);
        if block.calls.is_empty() {
            push_text(text, &mut segments);
        } else {
            segments.extend(block.segments(text));
        }
        rest = after;
    }
    push_text(rest, &mut segments);
    segments
}

/// Adds text that is no call, unless it is empty.
fn push_text<'a>(text: &'a str, segments: &mut Vec<CallSegment<'a>>) {
    if !text.is_empty() {
        segments.push(CallSegment { text, call: None });
    }
}

/// Returns the calls of a reply in order, each parsed or with its error. Empty if the reply has none. Text before the
/// end of thoughts is ignored.
pub fn calls(reply: &str, format: CallFormat, tools: &[Value]) -> Vec<Result<Call, CallError>> {
    match format {
        CallFormat::Hermes => json::hermes_calls(reply),
        CallFormat::Llama3Json => json::llama_calls(reply),
        CallFormat::Auto => read(reply),
        _ => {
            let first = find_opening(reply, format.openings());
            let answer = match format {
                CallFormat::Harmony => reply,
                _ => ThoughtTags::think().after_thoughts(reply, first),
            };
            let segments = split_calls(answer, format, tools);
            segments.into_iter().filter_map(|segment| segment.call).collect()
        }
    }
}

/// Returns the calls of a reply of an unknown model, as agents get it: a reply with a tag is parsed as Hermes, any other
/// as Llama 3.
pub fn read(reply: &str) -> Vec<Result<Call, CallError>> {
    if json::is_tagged(reply) { json::hermes_calls(reply) } else { json::llama_calls(reply) }
}

#[cfg(test)]
mod tests;

//! The readers of two other crates: `tool-parser` of smg, and `dynamo-parsers`.

use dynamo_parsers::tool_calling::{ToolDefinition, try_tool_call_parse_aggregate_finalize};
use maverl::tools::{Call, CallFormat};
use openai_protocol::common::Tool;
use serde_json::Value;
use tool_parser::ParserFactory;

/// A reader of another crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// `tool-parser`.
    ToolParser,
    /// `dynamo-parsers`.
    Dynamo,
}

impl Reader {
    /// Both readers.
    pub const ALL: [Self; 2] = [Self::ToolParser, Self::Dynamo];

    /// Returns the name of its crate.
    pub fn name(self) -> &'static str {
        match self {
            Self::ToolParser => "tool-parser",
            Self::Dynamo => "dynamo-parsers",
        }
    }

    /// Returns the crate's name of a form; `None` if it does not know the form.
    fn form(self, format: CallFormat) -> Option<&'static str> {
        let (tool_parser, dynamo) = match format {
            CallFormat::Hermes => ("qwen", "hermes"),
            CallFormat::Llama3Json => ("llama", "llama3_json"),
            CallFormat::QwenXml => ("qwen_xml", "qwen3_coder"),
            // The old form of Mistral is the one that both know.
            CallFormat::Mistral | CallFormat::MistralV11 => ("mistral", "mistral"),
            CallFormat::Pythonic => ("pythonic", "pythonic"),
            CallFormat::Gemma4 => ("gemma4", "gemma4"),
            CallFormat::Glm => ("glm45_moe", "glm47"),
            CallFormat::DeepseekV3 => ("deepseek", "deepseek_v3"),
            CallFormat::DeepseekV31 => ("deepseek31", "deepseek_v3_1"),
            CallFormat::DeepseekDsml => ("deepseek32", "deepseek_v3_2"),
            CallFormat::KimiK2 => ("kimik2", "kimi_k2"),
            CallFormat::MinimaxM2 => ("minimax_m2", "minimax_m2"),
            _ => return None,
        };
        Some(if self == Self::ToolParser { tool_parser } else { dynamo })
    }

    /// Returns the calls of a reply, without those whose arguments are no JSON object. `None` if the crate does not know the form
    /// or returns an error.
    pub async fn calls(
        self,
        reply: &str,
        format: CallFormat,
        tools: &[Value],
    ) -> Option<Vec<Call>> {
        let form = self.form(format)?;
        match self {
            Self::ToolParser => {
                let parser = ParserFactory::new().registry().create_parser(form)?;
                let tools: Vec<Tool> = serde_json::from_value(tools.to_vec().into()).ok()?;
                let (_, calls) = parser.parse_complete_with_tools(reply, &tools).await.ok()?;
                let call = |call: tool_parser::ToolCall| {
                    to_call(call.function.name, &call.function.arguments)
                };
                Some(calls.into_iter().filter_map(call).collect())
            }
            Self::Dynamo => {
                let tools: Vec<ToolDefinition> = tools.iter().map(definition).collect();
                let read = try_tool_call_parse_aggregate_finalize(reply, Some(form), Some(&tools));
                let (calls, _) = read.await.ok()?;
                let call = |call: dynamo_parsers::tool_calling::ToolCallResponse| {
                    to_call(call.function.name, &call.function.arguments)
                };
                Some(calls.into_iter().filter_map(call).collect())
            }
        }
    }
}

fn to_call(name: String, arguments: &str) -> Option<Call> {
    let arguments = serde_json::from_str(arguments).ok()?;
    Some(Call { name, arguments })
}

fn definition(tool: &Value) -> ToolDefinition {
    let function = &tool["function"];
    ToolDefinition {
        name: function["name"].as_str().unwrap_or_default().to_owned(),
        parameters: Some(function["parameters"].clone()),
        strict: None,
    }
}

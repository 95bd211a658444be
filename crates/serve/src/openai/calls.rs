//! Tools of a request, and calls in replies.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::fields::{Fields, show_value};
use super::limits::MOST_TOOLS;
use super::request::{RequestField, request};
use crate::refusal::Refusal;
use maverl::tools::{Schema, Tool};

/// Tools of a request.
#[derive(Debug, Default, Clone)]
pub(crate) struct Tools {
    /// Declarations in the form of chat templates; empty if the reply may have no calls.
    pub(crate) declared: Vec<Value>,
    /// Maximum number of calls of a reply.
    pub(crate) most: usize,
    /// Demand for calls.
    pub(crate) choice: ToolChoice,
}

/// Demand for calls in a reply.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// At least one call.
    Required,
    /// A call of this tool.
    Named(String),
}

request! {
    struct ToolFields {
        parallel_tool_calls: Option<Value>,
        tools: Option<Value>,
        tool_choice: Option<Value>,
    }
}

impl RequestField for Tools {
    fn read_field(fields: &mut Fields, _: &str) -> Result<Self, Refusal> {
        let ToolFields { parallel_tool_calls, tools, tool_choice } = fields.read()?;
        let most = if parallel_tool_calls == Some(Value::Bool(false)) { 1 } else { usize::MAX };
        let list = match tools {
            None => Vec::new(),
            Some(Value::Array(list)) => list,
            Some(other) => return Err(fields.wrong("tools", &other, "a list of tools")),
        };
        if list.len() > MOST_TOOLS {
            let what = format!("has {} tools; a request may have {MOST_TOOLS}", list.len());
            return Err(fields.error("tools", &what));
        }
        let declared = list.iter().enumerate().map(|(i, tool)| {
            declaration(tool).map_err(|what| fields.error(&format!("tools[{i}]"), &what))
        });
        let declared: Vec<Value> = declared.collect::<Result<_, _>>()?;
        let choice = match &tool_choice {
            None => ToolChoice::Auto,
            Some(Value::String(word)) if word == "none" => return Ok(Self::default()),
            Some(asked) => ToolChoice::read(asked).ok_or_else(|| {
                fields.wrong("tool_choice", asked, "auto, none, required or a function")
            })?,
        };
        match &choice {
            ToolChoice::Required if declared.is_empty() => {
                Err(fields.error("tool_choice", "is \"required\", and there is no tool in `tools`"))
            }
            ToolChoice::Named(name)
                if !declared.iter().any(|tool| tool["function"]["name"] == *name) =>
            {
                Err(fields
                    .error("tool_choice", &format!("names {name:?}, which is not in `tools`")))
            }
            _ => Ok(Self { declared, most, choice }),
        }
    }
}

impl ToolChoice {
    fn read(asked: &Value) -> Option<Self> {
        match asked.as_str() {
            Some("auto") => Some(Self::Auto),
            Some("required") => Some(Self::Required),
            Some(_) => None,
            None => asked["function"]["name"].as_str().map(|name| Self::Named(name.to_owned())),
        }
    }
}

/// Returns the declaration of a tool as it is in a run: further keys, which a template would show to the model, are
/// left out.
fn declaration(tool: &Value) -> Result<Value, String> {
    if tool["type"] != "function" {
        return Err(format!("is {}; this server knows tools of type `function`", show_value(tool)));
    }
    let function = &tool["function"];
    let name = function["name"].as_str().filter(|name| !name.is_empty());
    let name = name.ok_or("has no `function` with a `name`")?.to_owned();
    let description = function["description"].as_str().unwrap_or_default().to_owned();
    let parameters = match &function["parameters"] {
        Value::Null => json!({"type": "object", "properties": {}}),
        Value::Object(schema) => Value::Object(schema.clone()),
        other => {
            return Err(format!("has `parameters` = {}; write a JSON schema", show_value(other)));
        }
    };
    Ok(Tool { name, description, parameters: Schema::of_server(parameters) }.declaration())
}

/// Returns the id of call `index` of a reply: equal requests have equal ids.
pub(crate) fn call_id(seed: u64, index: usize) -> String {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    hash.update((index as u64).to_le_bytes());
    let mut id = "call_".to_owned();
    for byte in &hash.finalize()[..12] {
        // Writing to a string does not fail.
        let _ = write!(id, "{byte:02x}");
    }
    id
}

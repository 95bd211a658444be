//! Tool calls: parsed from replies and validated against the tool's schema. Also Rust functions as tools.
//!
//! A model writes a call in the form of its chat template (`formats`). Parsing is lenient about form (spaces, fences, a missing
//! last tag, arguments as a string) and strict about content: an unknown name, and arguments that violate the schema,
//! are errors in words for the model, never guesses.

mod describe;
mod formats;
mod function;
mod schema;

#[doc(hidden)]
pub use describe::describe;
pub use formats::{
    CallFormat, ReplyFormat, TemplateCalls, ThoughtFormat, ThoughtTags, calls, read,
    template_calls, unreadable_call,
};
#[doc(hidden)]
pub use formats::{
    CallSegment, Channel, ChannelHeader, ChannelPart, TaggedCall, bare_calls, split_calls,
    split_channels, tagged_calls, whole_calls,
};
pub use function::{Arguments, DeclaredTool, NoArguments, ToolFuture, ToolOutput, declared_tools};
pub use schema::{Schema, SchemaError};

// Crates for deriving the argument of a tool.
pub use {schemars, serde};

use serde_json::{Map, Value, json};

use crate::agent::Show;
use crate::task::Action;

/// A tool that a model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Name of the tool.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// Schema of the arguments: an object.
    pub parameters: Schema,
}

impl Tool {
    /// Returns the declaration in the form of chat templates and OpenAI's protocol.
    pub fn declaration(&self) -> Value {
        json!({
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters.json(),
            },
        })
    }
}

/// Formatted as the tool's name in a prompt.
impl Show for Tool {
    fn show(&self) -> String {
        self.name.clone()
    }
}

/// A call in a reply; its tool need not exist.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Name of the tool.
    pub name: String,
    /// Arguments.
    pub arguments: Map<String, Value>,
}

impl From<Call> for Action {
    fn from(Call { name, arguments }: Call) -> Self {
        Self::Tool { name, arguments: Value::Object(arguments) }
    }
}

/// Problem with a call, in words for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The text that should be a call cannot be parsed.
    #[error("a tool call is no JSON object with `name` and `arguments`: {0}")]
    Unreadable(String),
    /// A call in another form than JSON cannot be parsed.
    #[error("a tool call cannot be read: {0}")]
    Malformed(String),
    /// No tool has this name.
    #[error("there is no tool `{name}`; there is {}", known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// The existing names.
        known: Vec<String>,
    },
    /// The arguments violate the tool's schema.
    #[error("the arguments of `{name}` are wrong: {what}")]
    Arguments {
        /// The tool.
        name: String,
        /// Description of the problem.
        what: String,
    },
}

/// Returns the tool of a call if the arguments satisfy its schema.
///
/// # Errors
///
/// If no tool has the name, or its schema rejects the arguments.
pub fn check<'a>(call: &Call, tools: &'a [Tool]) -> Result<&'a Tool, CallError> {
    let Some(tool) = tools.iter().find(|tool| tool.name == call.name) else {
        let known = tools.iter().map(|tool| format!("`{}`", tool.name)).collect();
        return Err(CallError::Unknown { name: call.name.clone(), known });
    };
    let arguments = Value::Object(call.arguments.clone());
    match tool.parameters.check(&arguments) {
        Ok(()) => Ok(tool),
        Err(what) => Err(CallError::Arguments { name: call.name.clone(), what }),
    }
}

#[cfg(test)]
mod tests;

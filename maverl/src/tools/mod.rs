//! Tool calls: read from replies, checked against what a tool takes. And the Rust functions that are tools.
//!
//! A model writes a call in the format that its chat template taught it. Reading is lenient about form (spaces, fences, a
//! last tag that is missing, arguments as a text) and strict about content: a name that no tool has, and arguments that
//! its schema does not allow, are errors with words for the model, never guesses.

mod describe;
mod function;
mod parse;
mod schema;

pub use describe::describe;
pub use function::{Arguments, Declared, NoArguments, ToolFuture, ToolOutput, declared};
pub use parse::{Format, calls, read};
pub use schema::{Schema, SchemaError};

// What the argument of a tool is derived with.
pub use {schemars, serde};

use serde_json::{Map, Value, json};

use crate::agent::Show;
use crate::task::Action;

/// What a model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// How it is called.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// What it takes: an object.
    pub parameters: Schema,
}

impl Tool {
    /// The declaration as chat templates and OpenAI's protocol take it.
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

/// As a prompt names it.
impl Show for Tool {
    fn show(&self) -> String {
        self.name.clone()
    }
}

/// A call as a reply has it; what it names need not exist.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The tool's name.
    pub name: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
}

impl From<Call> for Action {
    fn from(Call { name, arguments }: Call) -> Self {
        Self::Tool { name, arguments: Value::Object(arguments) }
    }
}

/// What is wrong with a call, in words for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// What should be a call is none.
    #[error("a tool call is no JSON object with `name` and `arguments`: {0}")]
    Unreadable(String),
    /// No tool has the name.
    #[error("there is no tool `{name}`; there is {}", known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The tool does not take these arguments.
    #[error("the arguments of `{name}` are wrong: {what}")]
    Arguments {
        /// The tool.
        name: String,
        /// What is wrong.
        what: String,
    },
}

/// The tool of a call, if it takes these arguments.
///
/// # Errors
///
/// If no tool has the name, or its schema refuses the arguments.
pub fn check<'a>(call: &Call, tools: &'a [Tool]) -> Result<&'a Tool, CallError> {
    let Some(tool) = tools.iter().find(|tool| tool.name == call.name) else {
        let known = tools.iter().map(|tool| format!("`{}`", tool.name)).collect();
        return Err(CallError::Unknown { name: call.name.clone(), known });
    };
    let arguments = Value::Object(call.arguments.clone());
    let wrong = |what| CallError::Arguments { name: call.name.clone(), what };
    tool.parameters.check(&arguments).map_err(wrong)?;
    Ok(tool)
}

#[cfg(test)]
mod tests;

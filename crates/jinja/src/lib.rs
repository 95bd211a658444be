//! Jinja templates, rendered as `transformers` renders chat templates, with bounds on the cost of a rendering.
//!
//! A chat template is a program that comes with a model, from anyone. [`Limits`] bound its cost: every operation
//! charges its steps and bytes before it uses them, the nesting of values and calls is bounded, and a template can
//! access nothing but its variables and the date. The depth of recursion in parsing and evaluation is bounded, whatever
//! the template.
//!
//! The language is that of `jinja2`'s `ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)` with loop
//! controls and the additions of `transformers`: `tojson` is `json.dumps(..., ensure_ascii=False)`, `raise_exception`,
//! `strftime_now`, and `{% generation %}` blocks. Deviations:
//!
//! - filters that return a generator in Python return a list;
//! - `escape` returns plain text; there is no automatic escaping;
//! - an integer has at most 127 bits;
//! - `urlize`, `wordwrap`, `xmlattr`, `filesizeformat`, `random` and `lipsum` do not exist;
//! - a macro takes `varargs` and `kwargs` whether or not it reads them.

mod access;
mod arguments;
mod ast;
mod filters;
mod format;
mod interpreter;
mod lexer;
mod meter;
mod methods;
mod operators;
mod parser;
mod predicates;
mod print;
mod value;

use std::sync::Arc;

use jiff::civil::DateTime;
use serde_json::Map;

pub use meter::Limits;
use meter::{Failure, Meter};

/// Error of parsing a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct SyntaxError {
    /// Line of the error.
    pub line: u32,
    /// Description: what was found and expected.
    pub message: String,
}

/// Error of rendering a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct RenderError {
    /// Line of the statement or call.
    pub line: u32,
    /// Message that the template raised, operation that failed, or limit that was reached.
    pub message: String,
}

/// A parsed template.
pub struct Template {
    body: ast::Block,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    ///
    /// If its syntax is wrong, it is too large, or it nests too deeply.
    pub fn parse(source: &str) -> Result<Self, SyntaxError> {
        Ok(Self { body: parser::parse(source)? })
    }

    /// Renders the template with variables.
    ///
    /// # Errors
    ///
    /// If an operation fails, the template raises, or a limit is reached.
    pub fn render(
        &self,
        variables: &Map<String, serde_json::Value>,
        now: DateTime,
        limits: Limits,
    ) -> Result<String, RenderError> {
        self.metered(variables, now, &Meter::new(limits))
    }

    fn metered(
        &self,
        variables: &Map<String, serde_json::Value>,
        now: DateTime,
        meter: &Meter,
    ) -> Result<String, RenderError> {
        let failed = |line: u32, failure: Failure| RenderError {
            line,
            message: match failure {
                Failure::Raised(message) => format!("the template raised: {message}"),
                Failure::Refused(message) | Failure::Limit(message) => message,
            },
        };
        let values = variables
            .iter()
            .map(|(name, value)| Ok((Arc::from(name.as_str()), value::Value::from_json(value)?)))
            .collect::<Result<_, Failure>>()
            .map_err(|failure| failed(1, failure))?;
        let mut interpreter = interpreter::Interpreter::new(values, now, meter);
        let outcome = interpreter.run(&self.body);
        outcome.map_err(|failure| failed(interpreter.line, failure))
    }
}

#[cfg(test)]
mod tests;

//! Jinja templates, as `transformers` renders chat templates, with bounds on what a rendering costs.
//!
//! A chat template is a program that comes with a model, from anyone. Here it cannot take more than [`Limits`] allow: every
//! operation charges the steps and the bytes it takes before it takes them, values and calls are nested to a depth only, and
//! nothing but the variables and the date is within reach. There is no recursion in parsing or evaluating that the template
//! decides the depth of.
//!
//! The language is that of `jinja2`'s `ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)` with loop controls
//! and what `transformers` adds: `tojson` is `json.dumps(..., ensure_ascii=False)`, `raise_exception`, `strftime_now`, and
//! `{% generation %}` blocks. Deviations:
//!
//! - filters that give a generator to Python give a list;
//! - `escape` gives plain text; there is no automatic escaping;
//! - a whole number has at most 127 bits;
//! - `urlize`, `wordwrap`, `xmlattr`, `filesizeformat`, `random` and `lipsum` are not there;
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

/// Why a template does not parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct SyntaxError {
    /// Its line.
    pub line: u32,
    /// What was found and expected.
    pub message: String,
}

/// Why a template does not render.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct RenderError {
    /// The line of the statement or call.
    pub line: u32,
    /// What the template raised, which operation failed, or which limit was reached.
    pub message: String,
}

/// A template.
pub struct Template {
    body: ast::Block,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    ///
    /// If it is not one, is too large, or nests too deeply.
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

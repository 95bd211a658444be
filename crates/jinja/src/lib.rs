//! Chat templates: Jinja as `transformers` renders it, with bounds on the cost of a rendering.
//!
//! A chat template is a program that comes with a model, from anyone. [`RenderLimits`] bound its cost: every operation
//! charges its steps and bytes before it uses them, the nesting of values and calls is bounded, and a template can
//! access nothing but its variables and the date. The depth of recursion in parsing and evaluation is bounded, whatever
//! the template.
//!
//! The language is the part of `jinja2` that published chat templates use, in the environment that `transformers`
//! makes: `ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)` with loop controls, `tojson` as
//! `json.dumps(..., ensure_ascii=False)`, `raise_exception`, `strftime_now`, and `{% generation %}` blocks. A template
//! that uses another part gets an error that names what exists: [`Error`]. What is supported gives the text of `jinja2`,
//! except that
//!
//! - filters that return a generator in Python return a list;
//! - an integer has at most 127 bits;
//! - a method cannot be stored: it is called where it is named.
//!
//! `minijinja` 3.1 was tried in its place. Its fuel counts steps and bytes, but long chains of operators, deep values and
//! a namespace in itself overflow the stack, and comparing or printing shared values costs no fuel until it is done.
//! Of the hostile templates of the tests it leaves 26 of 70 without a bound; floats in printed lists, `indent` and loops
//! over texts differ from jinja2.

mod arguments;
mod ast;
mod filters;
mod interpreter;
mod lexer;
mod meter;
mod methods;
mod operators;
mod parser;
mod predicates;
mod print;

mod texts;
mod value;

use std::sync::Arc;

use jiff::civil::DateTime;
use serde_json::Map;

use interpreter::Interpreter;
pub use meter::RenderLimits;
use meter::{RenderFailure, RenderMeter, RenderResult};
use value::TemplateValue;

/// Error of parsing or rendering a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}{}", .remedy.as_ref().map_or_else(String::new, |remedy| format!("; {remedy}")))]
pub struct Error {
    /// Line of the statement or call.
    pub line: u32,
    /// Syntax error, message that the template raised, operation that failed, or limit that was reached.
    pub reason: String,
    /// Text to write instead, if it is known.
    pub remedy: Option<String>,
}

/// A parsed template.
pub struct Template {
    body: ast::TemplateBlock,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    ///
    /// If its syntax is wrong, it is too large, or it nests too deeply.
    pub fn parse(source: &str) -> Result<Self, Error> {
        let parsed = parser::parse_template(source);
        let body = parsed.map_err(|mut error| {
            error.reason.insert_str(0, "syntax error: ");
            error
        })?;
        Ok(Self { body })
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
        limits: RenderLimits,
    ) -> Result<String, Error> {
        self.render_metered(variables, now, &RenderMeter::new(limits))
    }

    fn render_metered(
        &self,
        variables: &Map<String, serde_json::Value>,
        now: DateTime,
        meter: &RenderMeter,
    ) -> Result<String, Error> {
        let values = variables
            .iter()
            .map(|(name, value)| Ok((Arc::from(name.as_str()), TemplateValue::from_json(value)?)))
            .collect::<RenderResult<_>>()
            .map_err(|failure| error_at_line(1, failure))?;
        let mut interpreter = Interpreter::new(values, now, meter);
        let outcome = interpreter.run(&self.body);
        outcome.map_err(|failure| error_at_line(interpreter.line, failure))
    }
}

fn error_at_line(line: u32, failure: RenderFailure) -> Error {
    Error { line, reason: failure.reason, remedy: failure.remedy }
}

#[cfg(test)]
mod tests;

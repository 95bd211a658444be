//! ChatInput templates, rendered as `transformers` does.
//!
//! An environment behaves like `jinja2`'s `ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)` with loop
//! controls and what `transformers` adds: `tojson` is `json.dumps(..., ensure_ascii=False)`, `raise_exception`,
//! `strftime_now`, and `{% generation %}` blocks. Values are printed as Python prints them.

use std::collections::BTreeMap;

use jiff::civil::{DateTime, date};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value, from_args};
use minijinja::{Environment, Error, ErrorKind, Output, State};
use minijinja_contrib::pycompat::unknown_method_callback as python_method;
use serde_json::Map;

use crate::model::tokenizer::{ChatInput, TokenizerError, caught_in, python};

/// Instructions a rendering may take: a template that loops without end is an error after a second or two.
const FUEL: u64 = 20_000_000;

/// The chat templates of a model, by name.
pub(super) struct Templates {
    environment: Environment<'static>,
    names: Vec<String>,
}

impl Templates {
    /// Parses templates.
    ///
    /// # Errors
    ///
    /// If one does not parse; it is named, with the line.
    pub(super) fn parse(sources: BTreeMap<String, String>) -> Result<Self, TokenizerError> {
        let names = sources.keys().cloned().collect();
        let mut environment = environment().map_err(|e| told(&e))?;
        for (name, source) in sources {
            let source = generation_as_scope(&source);
            environment.add_template_owned(name, source).map_err(|e| told(&e))?;
        }
        let mut templates = Self { environment, names };
        // What Llama 3.2's template falls back to.
        templates.tell(date(2024, 7, 26).at(0, 0, 0, 0));
        Ok(templates)
    }

    /// Sets the time that templates are told.
    pub(super) fn tell(&mut self, now: DateTime) {
        self.environment.add_function("strftime_now", move |format: String| {
            jiff::fmt::strtime::format(format, now)
                .map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {e}")))
        });
    }

    /// The names of the templates, sorted.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The name of the template that renders a conversation.
    ///
    /// # Errors
    ///
    /// If the one that is asked for does not exist, or nothing says which of several is meant.
    pub(super) fn choose(&self, chat: &ChatInput) -> Result<&str, TokenizerError> {
        let named = |wanted: &str| self.names.iter().find(|name| *name == wanted);
        let found = match (&chat.chat_template, self.names.as_slice()) {
            (Some(name), _) => named(name),
            (None, [only]) => Some(only),
            (None, _) => {
                chat.tools.as_ref().and_then(|_| named("tool_use")).or_else(|| named("default"))
            }
        };
        found.map(String::as_str).ok_or_else(|| {
            let wanted = chat.chat_template.as_deref().unwrap_or("default");
            let names = self.names.join("`, `");
            TokenizerError(format!("no chat template `{wanted}`; the model has `{names}`"))
        })
    }

    /// Renders a template with variables.
    ///
    /// # Errors
    ///
    /// If the template fails or raises, or takes too long.
    pub(super) fn render(
        &self,
        name: &str,
        variables: &Map<String, serde_json::Value>,
    ) -> Result<String, TokenizerError> {
        let template = self.environment.get_template(name).map_err(|e| told(&e))?;
        // `minijinja` indexes into an empty text that is reversed (`text[::-1]`), and may so elsewhere.
        caught_in(|| template.render(Value::from(Serde(variables))))
            .map_err(|panic| TokenizerError(format!("chat template `{name}` panicked: {panic}")))?
            .map_err(|e| told(&e))
    }
}

/// A template's error: what and where. What a template raised is said in its own words.
fn told(error: &Error) -> TokenizerError {
    let place = match (error.name(), error.line()) {
        (Some("default") | None, Some(line)) => format!(", line {line}"),
        (Some(name), Some(line)) => format!(" `{name}`, line {line}"),
        _ => String::new(),
    };
    let what = match error.detail() {
        Some(raised) if raised.starts_with(RAISED) => raised.to_owned(),
        Some(detail) => format!("{}: {detail}", error.kind()),
        None if error.kind() == ErrorKind::OutOfFuel => {
            format!("it did not come to an end within {FUEL} instructions")
        }
        None => error.kind().to_string(),
    };
    TokenizerError(format!("chat template{place}: {what}"))
}

const RAISED: &str = "the template raised: ";

fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let blocks = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    environment.set_syntax(blocks);
    environment.set_debug(false);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(method);
    environment.set_formatter(|out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value| {
        match value.as_str() {
            Some(text) => out.write_str(text),
            None => out.write_str(&python::text(value)?),
        }
        .map_err(Error::from)
    });
    environment.add_filter("tojson", tojson);
    environment.add_filter("trim", |text: String, of: Option<String>| {
        strip(&text, of.as_deref(), true, true).to_owned()
    });
    environment.add_filter("string", |value: &Value| python::text(value));
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
    });
    Ok(environment)
}

/// `{% generation %}` marks what the assistant says, for masks. Ours come from the ids, so nothing is left of it but what
/// it is to `jinja2` besides: a scope, as `{% with %}`.
fn generation_as_scope(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        let word = tag.trim_start_matches(['-', '+']).trim_start();
        let scope =
            [("generation", "with"), ("endgeneration", "endwith")].iter().find_map(|pair| {
                let end = word.strip_prefix(pair.0)?;
                end.trim_start()
                    .trim_start_matches(['-', '+'])
                    .starts_with("%}")
                    .then_some((end, pair.1))
            });
        rest = match scope {
            None => tag,
            Some((end, scope)) => {
                out.push_str(&tag[..tag.len() - word.len()]);
                out.push_str(scope);
                end
            }
        };
    }
    out + rest
}

/// `json.dumps(value, ensure_ascii=False, ...)`, which `transformers` installs as `tojson`.
#[expect(clippy::needless_pass_by_value, reason = "as templates hand over arguments")]
fn tojson(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<Value> = options.get("indent")?;
    let indent = indent.map(|indent| indentation(&indent)).transpose()?;
    let separators: Option<(String, String)> = match options.get::<Option<Value>>("separators")? {
        Some(pair) if !pair.is_none() => {
            let pair: Vec<String> = pair.try_iter()?.map(|s| s.to_string()).collect();
            let [item, key]: [String; 2] = pair.try_into().map_err(|_| {
                Error::new(ErrorKind::InvalidOperation, "`separators` is a pair of strings")
            })?;
            Some((item, key))
        }
        _ => None,
    };
    let indent = indent.flatten();
    let item = if indent.is_some() { "," } else { ", " };
    let style = python::Json {
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        separators: separators.unwrap_or_else(|| (item.to_owned(), ": ".to_owned())),
        indent,
    };
    options.assert_all_used()?;
    python::json(value, &style)
}

/// `indent` is a number of spaces, or what to indent with.
fn indentation(indent: &Value) -> Result<Option<String>, Error> {
    if indent.is_none() {
        return Ok(None);
    }
    match (indent.as_str(), indent.as_i64()) {
        (Some(text), _) => Ok(Some(text.to_owned())),
        (None, Some(spaces @ ..=100)) => Ok(Some(" ".repeat(usize::try_from(spaces).unwrap_or(0)))),
        _ => Err(Error::new(ErrorKind::InvalidOperation, "`indent` is a number up to 100")),
    }
}

/// A text without certain characters at its ends, without an argument those that are white to Python: Unicode's, and the
/// separators of ASCII.
fn strip<'a>(text: &'a str, of: Option<&str>, left: bool, right: bool) -> &'a str {
    let goes = |char: char| match of {
        Some(of) => of.contains(char),
        None => char.is_whitespace() || ('\x1c'..='\x1f').contains(&char),
    };
    let text = if left { text.trim_start_matches(goes) } else { text };
    if right { text.trim_end_matches(goes) } else { text }
}

/// Methods of Python's types: those of `pycompat`, and what it lacks.
fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match (value.as_str(), name) {
        (Some(text), "strip" | "lstrip" | "rstrip") => {
            let (of,): (Option<&str>,) = from_args(args)?;
            Ok(Value::from(strip(text, of, name != "rstrip", name != "lstrip")))
        }
        (Some(text), "removeprefix") => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        (Some(text), "removesuffix") => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        (Some(text), "rsplit") => {
            let (separator, times): (&str, Option<i64>) = from_args(args)?;
            let pieces = times
                .and_then(|times| usize::try_from(times).ok())
                .map_or(usize::MAX, |n| n.saturating_add(1));
            let mut pieces: Vec<Value> = text.rsplitn(pieces, separator).map(Value::from).collect();
            pieces.reverse();
            Ok(Value::from(pieces))
        }
        _ => python_method(state, value, name, args),
    }
}

#[cfg(test)]
mod tests;

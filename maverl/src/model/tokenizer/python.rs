//! Values as Python spells them: `json.dumps` and `str`.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Deeper values are refused; Python gives up at about 1000.
const DEPTH: usize = 128;

/// The arguments of `json.dumps`.
#[derive(Debug, Clone)]
pub(super) struct Json {
    /// Characters beyond ASCII are escaped.
    pub(super) ensure_ascii: bool,
    /// What a level is indented by; `None` writes everything on one line.
    pub(super) indent: Option<String>,
    /// What stands between items, and between key and value.
    pub(super) separators: (String, String),
    /// Objects are sorted by key.
    pub(super) sort_keys: bool,
}

/// `json.dumps(value, ...)`.
///
/// # Errors
///
/// If the value holds something JSON has no word for (as an undefined one), or is nested too deeply.
pub(super) fn json(value: &Value, style: &Json) -> Result<String, Error> {
    let mut out = String::new();
    style.write(&mut out, value, 0)?;
    Ok(out)
}

impl Json {
    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEPTH {
            return Err(failed("`tojson` of a value nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&number(value, ["NaN", "Infinity"])?),
            ValueKind::String => self.quote(out, value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.items(out, ['[', ']'], &items, depth, |out, item| {
                    self.write(out, item, depth + 1)
                })?;
            }
            ValueKind::Map => self.map(out, value, depth)?,
            other => return Err(failed(format!("`tojson` of a value of type {other}"))),
        }
        Ok(())
    }

    fn map(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        let mut entries = Vec::new();
        for key in value.try_iter()? {
            let name = match key.kind() {
                ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
                _ => json(&key, self)?,
            };
            entries.push((name, value.get_item(&key)?));
        }
        if self.sort_keys {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
        }
        self.items(out, ['{', '}'], &entries, depth, |out, (key, item)| {
            self.quote(out, key);
            out.push_str(&self.separators.1);
            self.write(out, item, depth + 1)
        })
    }

    fn items<T>(
        &self,
        out: &mut String,
        [open, close]: [char; 2],
        items: &[T],
        depth: usize,
        mut write: impl FnMut(&mut String, &T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let line = |out: &mut String, depth: usize| {
            if let Some(indent) = &self.indent {
                out.push('\n');
                (0..depth).for_each(|_| out.push_str(indent));
            }
        };
        out.push(open);
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                out.push_str(&self.separators.0);
            }
            line(out, depth + 1);
            write(out, item)?;
        }
        if !items.is_empty() {
            line(out, depth);
        }
        out.push(close);
        Ok(())
    }

    fn quote(&self, out: &mut String, text: &str) {
        out.push('"');
        for char in text.chars() {
            match char {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(char))),
                '\u{7f}'.. if self.ensure_ascii => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                _ => out.push(char),
            }
        }
        out.push('"');
    }
}

/// `str(value)`, which is what a template prints.
///
/// # Errors
///
/// If the value is nested too deeply.
pub(super) fn text(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(String::new()),
        ValueKind::String => Ok(value.as_str().unwrap_or_default().to_owned()),
        _ => {
            let mut out = String::new();
            repr(&mut out, value, 0)?;
            Ok(out)
        }
    }
}

fn repr(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > DEPTH {
        return Err(failed("a value nested too deeply to be printed"));
    }
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value, ["nan", "inf"])?),
        ValueKind::String => quoted(out, value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            let [open, close] = if value.is_tuple() { ["(", ")"] } else { ["[", "]"] };
            out.push_str(open);
            let items: Vec<Value> = value.try_iter()?.collect();
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(out, item, depth + 1)?;
            }
            out.push_str(if value.is_tuple() && items.len() == 1 { "," } else { "" });
            out.push_str(close);
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(out, &key, depth + 1)?;
                out.push_str(": ");
                repr(out, &value.get_item(&key)?, depth + 1)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

/// A string within a list or an object: in single quotes, unless only double ones need no escape.
fn quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if char == quote => out.extend(['\\', quote]),
            _ if char.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(char))),
            _ => out.push(char),
        }
    }
    out.push(quote);
}

/// The shortest digits that read back as the same number; an exponent below 1e-4 and from 1e16 on.
fn number(value: &Value, [nan, infinity]: [&str; 2]) -> Result<String, Error> {
    if value.is_integer() {
        return Ok(value.to_string());
    }
    let number = f64::try_from(value.clone())?;
    if number.is_nan() {
        return Ok(nan.to_owned());
    }
    if number.is_infinite() {
        return Ok(format!("{}{infinity}", if number < 0.0 { "-" } else { "" }));
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if number == 0.0 || (-4..16).contains(&exponent) {
        let plain = number.to_string();
        return Ok(if plain.contains('.') { plain } else { plain + ".0" });
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    Ok(format!("{digits}e{sign}{:02}", exponent.unsigned_abs()))
}

fn failed(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadSerialization, message.into())
}

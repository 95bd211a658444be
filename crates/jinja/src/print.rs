//! Text forms of values in Python: `str`, `repr` and `json.dumps`.

use crate::meter::{Meter, Outcome, refused};
use crate::value::Value;

/// A text that charges its growth.
pub(crate) struct Out<'m> {
    pub(crate) text: String,
    meter: &'m Meter,
}

impl<'m> Out<'m> {
    pub(crate) fn new(meter: &'m Meter) -> Self {
        Self { text: String::new(), meter }
    }

    pub(crate) fn push(&mut self, text: &str) -> Outcome<()> {
        self.meter.bytes(text.len())?;
        self.text.push_str(text);
        Ok(())
    }

    /// Appends a text `times` times.
    pub(crate) fn fill(&mut self, text: &str, times: usize) -> Outcome<()> {
        self.meter.product(times, text.len())?;
        (0..times).for_each(|_| self.text.push_str(text));
        Ok(())
    }
}

/// Arguments of `json.dumps`.
#[derive(Debug, Clone)]
pub(crate) struct Json {
    /// True if characters beyond ASCII are escaped.
    pub(crate) ensure_ascii: bool,
    /// Indentation of one level; `None` writes everything on one line.
    pub(crate) indent: Option<String>,
    /// Separators between items, and between key and value.
    pub(crate) separators: (String, String),
    /// True if objects are sorted by key.
    pub(crate) sort_keys: bool,
}

impl Json {
    /// Computes `json.dumps(value, ...)`.
    pub(crate) fn dumps(&self, value: &Value, meter: &Meter) -> Outcome<String> {
        let mut out = Out::new(meter);
        self.write(&mut out, value, 0)?;
        Ok(out.text)
    }

    fn write(&self, out: &mut Out<'_>, value: &Value, depth: usize) -> Outcome<()> {
        match value {
            Value::None => out.push("null"),
            Value::Bool(true) => out.push("true"),
            Value::Bool(false) => out.push("false"),
            Value::Int(number) => out.push(&number.to_string()),
            Value::Float(number) => out.push(&float(*number, ["NaN", "Infinity"])),
            Value::Str(text) => self.quote(out, text),
            Value::List(list) => {
                let item = |out: &mut Out<'_>, item: &Value| self.write(out, item, depth + 1);
                self.items(out, ["[", "]"], &list.items, depth, item)
            }
            Value::Dict(dict) => self.map(out, &dict.entries, depth),
            other => refused(format!("`tojson` of a value of type {}", other.kind())),
        }
    }

    fn map(&self, out: &mut Out<'_>, entries: &[(Value, Value)], depth: usize) -> Outcome<()> {
        let mut named = Vec::new();
        for (key, value) in entries {
            out.meter.product(1, 2 * size_of::<Value>())?;
            let name = match key {
                Value::Str(name) => name.to_string(),
                Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
                    self.dumps(key, out.meter)?
                }
                other => return refused(format!("`tojson` of a key of type {}", other.kind())),
            };
            named.push((name, value));
        }
        if self.sort_keys {
            named.sort_by(|a, b| a.0.cmp(&b.0));
        }
        self.items(out, ["{", "}"], &named, depth, |out, (name, value)| {
            self.quote(out, name)?;
            out.push(&self.separators.1)?;
            self.write(out, value, depth + 1)
        })
    }

    fn items<T>(
        &self,
        out: &mut Out<'_>,
        [open, close]: [&str; 2],
        items: &[T],
        depth: usize,
        write: impl Fn(&mut Out<'_>, &T) -> Outcome<()>,
    ) -> Outcome<()> {
        let line = |out: &mut Out<'_>, depth: usize| match &self.indent {
            Some(indent) => {
                out.push("\n")?;
                out.fill(indent, depth)
            }
            None => Ok(()),
        };
        out.push(open)?;
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                out.push(&self.separators.0)?;
            }
            line(out, depth + 1)?;
            write(out, item)?;
        }
        if !items.is_empty() {
            line(out, depth)?;
        }
        out.push(close)
    }

    fn quote(&self, out: &mut Out<'_>, text: &str) -> Outcome<()> {
        // Most characters are written unchanged.
        out.meter.bytes(text.len() + 2)?;
        out.text.push('"');
        for char in text.chars() {
            match char {
                '"' => out.text.push_str("\\\""),
                '\\' => out.text.push_str("\\\\"),
                '\n' => out.text.push_str("\\n"),
                '\r' => out.text.push_str("\\r"),
                '\t' => out.text.push_str("\\t"),
                '\u{8}' => out.text.push_str("\\b"),
                '\u{c}' => out.text.push_str("\\f"),
                '\0'..='\u{1f}' => out.push(&format!("\\u{:04x}", u32::from(char)))?,
                '\u{7f}'.. if self.ensure_ascii => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        out.push(&format!("\\u{unit:04x}"))?;
                    }
                }
                _ => out.text.push(char),
            }
        }
        out.text.push('"');
        Ok(())
    }
}

/// Computes `str(value)`, which a template prints.
pub(crate) fn text(value: &Value, meter: &Meter) -> Outcome<String> {
    let mut out = Out::new(meter);
    write(&mut out, value)?;
    Ok(out.text)
}

/// Writes `str(value)`.
pub(crate) fn write(out: &mut Out<'_>, value: &Value) -> Outcome<()> {
    match value {
        Value::Undefined(_) => Ok(()),
        Value::Str(text) => out.push(text),
        _ => repr(out, value),
    }
}

/// Writes `repr(value)`.
pub(crate) fn repr(out: &mut Out<'_>, value: &Value) -> Outcome<()> {
    match value {
        Value::Undefined(_) => out.push("Undefined"),
        Value::None => out.push("None"),
        Value::Bool(true) => out.push("True"),
        Value::Bool(false) => out.push("False"),
        Value::Int(number) => out.push(&number.to_string()),
        Value::Float(number) => out.push(&float(*number, ["nan", "inf"])),
        Value::Str(text) => quoted(out, text),
        Value::List(list) => {
            out.push(if list.tuple { "(" } else { "[" })?;
            for (i, item) in list.items.iter().enumerate() {
                out.push(if i > 0 { ", " } else { "" })?;
                repr(out, item)?;
            }
            out.push(match (list.tuple, list.items.len()) {
                (false, _) => "]",
                (true, 1) => ",)",
                (true, _) => ")",
            })
        }
        Value::Dict(dict) => {
            out.push("{")?;
            for (i, (key, value)) in dict.entries.iter().enumerate() {
                out.push(if i > 0 { ", " } else { "" })?;
                repr(out, key)?;
                out.push(": ")?;
                repr(out, value)?;
            }
            out.push("}")
        }
        other => out.push(&format!("<{}>", other.kind())),
    }
}

/// Writes a string within a list or an object: in single quotes, unless only double quotes avoid escapes.
fn quoted(out: &mut Out<'_>, text: &str) -> Outcome<()> {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    // Most characters are written unchanged, or with a backslash.
    out.meter.bytes(2 * text.len() + 2)?;
    out.text.push(quote);
    for char in text.chars() {
        match char {
            '\\' => out.text.push_str("\\\\"),
            '\n' => out.text.push_str("\\n"),
            '\r' => out.text.push_str("\\r"),
            '\t' => out.text.push_str("\\t"),
            _ if char == quote => out.text.extend(['\\', quote]),
            ' '..='~' => out.text.push(char),
            _ if !is_printable(char) => out.push(&escape(char))?,
            _ => out.text.push(char),
        }
    }
    out.text.push(quote);
    Ok(())
}

/// Returns true for characters that Python prints: no control, format or unassigned characters, and no separators.
fn is_printable(char: char) -> bool {
    // Of a text, Rust escapes just these; those that join the character before them only at the beginning.
    let mut buffer = *b"a....";
    let end = 1 + char.encode_utf8(&mut buffer[1..]).len();
    let text = std::str::from_utf8(&buffer[..end]).unwrap_or_default();
    text.escape_debug().nth(1) != Some('\\')
}

/// Returns Python's escape of a character.
fn escape(char: char) -> String {
    match u32::from(char) {
        code @ ..=0xff => format!("\\x{code:02x}"),
        code @ ..=0xffff => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    }
}

/// Returns the shortest digits that parse to the same number; with an exponent below 1e-4 and from 1e16 on.
pub(crate) fn float(number: f64, [nan, infinity]: [&str; 2]) -> String {
    if number.is_nan() {
        return nan.to_owned();
    }
    if number.is_infinite() {
        return format!("{}{infinity}", if number < 0.0 { "-" } else { "" });
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if number == 0.0 || (-4..16).contains(&exponent) {
        let plain = number.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

//! Text forms of values in Python: `str`, `repr` and `json.dumps`.

use crate::meter::{RenderMeter, RenderResult, refuse_operation};
use crate::value::TemplateValue;

/// A text that charges its growth.
pub(crate) struct MeteredText<'m> {
    pub(crate) text: String,
    meter: &'m RenderMeter,
}

impl<'m> MeteredText<'m> {
    pub(crate) fn new(meter: &'m RenderMeter) -> Self {
        Self { text: String::new(), meter }
    }

    pub(crate) fn push(&mut self, text: &str) -> RenderResult<()> {
        self.meter.charge_bytes(text.len())?;
        self.text.push_str(text);
        Ok(())
    }

    /// Appends a text `times` times.
    pub(crate) fn push_repeated(&mut self, text: &str, times: usize) -> RenderResult<()> {
        self.meter.charge_product(times, text.len())?;
        (0..times).for_each(|_| self.text.push_str(text));
        Ok(())
    }
}

/// Arguments of `json.dumps`.
#[derive(Debug, Clone)]
pub(crate) struct JsonOptions {
    /// True if characters beyond ASCII are escaped.
    pub(crate) ensure_ascii: bool,
    /// Indentation of one level; `None` writes everything on one line.
    pub(crate) indent: Option<String>,
    /// Separators between items, and between key and value.
    pub(crate) separators: (String, String),
    /// True if objects are sorted by key.
    pub(crate) sort_keys: bool,
}

impl JsonOptions {
    /// Computes `json.dumps(value, ...)`.
    pub(crate) fn dumps(&self, value: &TemplateValue, meter: &RenderMeter) -> RenderResult<String> {
        let mut out = MeteredText::new(meter);
        self.write_value(&mut out, value, 0)?;
        Ok(out.text)
    }

    fn write_value(
        &self,
        out: &mut MeteredText<'_>,
        value: &TemplateValue,
        depth: usize,
    ) -> RenderResult<()> {
        match value {
            TemplateValue::None => out.push("null"),
            TemplateValue::Bool(true) => out.push("true"),
            TemplateValue::Bool(false) => out.push("false"),
            TemplateValue::Int(number) => out.push(&number.to_string()),
            TemplateValue::Float(number) => out.push(&format_float(*number, ["NaN", "Infinity"])),
            TemplateValue::Str(text) => self.write_quoted(out, text),
            TemplateValue::List(list) => {
                self.write_items(out, ["[", "]"], &list.items, depth, |out, item| {
                    self.write_value(out, item, depth + 1)
                })
            }
            TemplateValue::Dict(dict) => self.write_map(out, &dict.entries, depth),
            other => refuse_operation(format!("`tojson` of a value of type {}", other.kind())),
        }
    }

    fn write_map(
        &self,
        out: &mut MeteredText<'_>,
        entries: &[(TemplateValue, TemplateValue)],
        depth: usize,
    ) -> RenderResult<()> {
        let mut named = Vec::new();
        for (key, value) in entries {
            out.meter.charge_product(1, 2 * size_of::<TemplateValue>())?;
            let name = match key {
                TemplateValue::Str(name) => name.to_string(),
                TemplateValue::None
                | TemplateValue::Bool(_)
                | TemplateValue::Int(_)
                | TemplateValue::Float(_) => self.dumps(key, out.meter)?,
                other => {
                    return refuse_operation(format!("`tojson` of a key of type {}", other.kind()));
                }
            };
            named.push((name, value));
        }
        if self.sort_keys {
            named.sort_by(|a, b| a.0.cmp(&b.0));
        }
        self.write_items(out, ["{", "}"], &named, depth, |out, (name, value)| {
            self.write_quoted(out, name)?;
            out.push(&self.separators.1)?;
            self.write_value(out, value, depth + 1)
        })
    }

    fn write_items<T>(
        &self,
        out: &mut MeteredText<'_>,
        [open, close]: [&str; 2],
        items: &[T],
        depth: usize,
        write: impl Fn(&mut MeteredText<'_>, &T) -> RenderResult<()>,
    ) -> RenderResult<()> {
        out.push(open)?;
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                out.push(&self.separators.0)?;
            }
            self.write_line(out, depth + 1)?;
            write(out, item)?;
        }
        if !items.is_empty() {
            self.write_line(out, depth)?;
        }
        out.push(close)
    }

    /// Begins a line at a depth, if the output is indented.
    fn write_line(&self, out: &mut MeteredText<'_>, depth: usize) -> RenderResult<()> {
        let Some(indent) = &self.indent else { return Ok(()) };
        out.push("\n")?;
        out.push_repeated(indent, depth)
    }

    fn write_quoted(&self, out: &mut MeteredText<'_>, text: &str) -> RenderResult<()> {
        // Most characters are written unchanged.
        out.meter.charge_bytes(text.len() + 2)?;
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
pub(crate) fn str_text(value: &TemplateValue, meter: &RenderMeter) -> RenderResult<String> {
    let mut out = MeteredText::new(meter);
    write_str(&mut out, value)?;
    Ok(out.text)
}

/// Writes `str(value)`.
pub(crate) fn write_str(out: &mut MeteredText<'_>, value: &TemplateValue) -> RenderResult<()> {
    match value {
        TemplateValue::Undefined(_) => Ok(()),
        TemplateValue::Str(text) => out.push(text),
        _ => write_repr(out, value),
    }
}

/// Writes `repr(value)`.
pub(crate) fn write_repr(out: &mut MeteredText<'_>, value: &TemplateValue) -> RenderResult<()> {
    match value {
        TemplateValue::Undefined(_) => out.push("Undefined"),
        TemplateValue::None => out.push("None"),
        TemplateValue::Bool(true) => out.push("True"),
        TemplateValue::Bool(false) => out.push("False"),
        TemplateValue::Int(number) => out.push(&number.to_string()),
        TemplateValue::Float(number) => out.push(&format_float(*number, ["nan", "inf"])),
        TemplateValue::Str(text) => write_quoted(out, text),
        TemplateValue::List(list) => {
            out.push(if list.tuple { "(" } else { "[" })?;
            for (i, item) in list.items.iter().enumerate() {
                out.push(if i > 0 { ", " } else { "" })?;
                write_repr(out, item)?;
            }
            out.push(match (list.tuple, list.items.len()) {
                (false, _) => "]",
                (true, 1) => ",)",
                (true, _) => ")",
            })
        }
        TemplateValue::Dict(dict) => {
            out.push("{")?;
            for (i, (key, value)) in dict.entries.iter().enumerate() {
                out.push(if i > 0 { ", " } else { "" })?;
                write_repr(out, key)?;
                out.push(": ")?;
                write_repr(out, value)?;
            }
            out.push("}")
        }
        other => out.push(&format!("<{}>", other.kind())),
    }
}

/// Writes a string within a list or an object: in single quotes, unless only double quotes avoid escapes.
fn write_quoted(out: &mut MeteredText<'_>, text: &str) -> RenderResult<()> {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    // Most characters are written unchanged, or with a backslash.
    out.meter.charge_bytes(2 * text.len() + 2)?;
    out.text.push(quote);
    for char in text.chars() {
        match char {
            '\\' => out.text.push_str("\\\\"),
            '\n' => out.text.push_str("\\n"),
            '\r' => out.text.push_str("\\r"),
            '\t' => out.text.push_str("\\t"),
            _ if char == quote => out.text.extend(['\\', quote]),
            ' '..='~' => out.text.push(char),
            _ if !is_printable(char) => out.push(&escape_char(char))?,
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
fn escape_char(char: char) -> String {
    match u32::from(char) {
        code @ ..=0xff => format!("\\x{code:02x}"),
        code @ ..=0xffff => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    }
}

/// Returns the shortest digits that parse to the same number; with an exponent below 1e-4 and from 1e16 on.
pub(crate) fn format_float(number: f64, [nan, infinity]: [&str; 2]) -> String {
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

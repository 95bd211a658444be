//! Calls as Python: `[f(a=1, b="x"), g()]`.
//!
//! Values are literals: texts, numbers, `True`, `False`, `None`, lists, tuples and dictionaries. JSON's `true`, `false` and
//! `null` are read as well.

use serde_json::{Map, Value};

use super::block::{BlockCall, CallBlock, find_opening, is_name, text_start};
use super::cursor::{Read, TextCursor};
use super::number::python_number;
use crate::tools::{Call, CallError};

/// Most levels of nested values, as of JSON.
const DEPTH: usize = 128;
/// Openings and ends of the tags around a list of calls.
const TAGS: [[&str; 2]; 2] =
    [["<|tool_call_start|>", "<|tool_call_end|>"], ["<|python_start|>", "<|python_end|>"]];

/// Reads the calls at the beginning of a text, in tags or without.
pub(super) fn read_python_calls(text: &str) -> CallBlock {
    let tag = TAGS.iter().find(|[open, _]| text.starts_with(open));
    let start = tag.map_or(0, |[open, _]| open.len());
    let mut reader = LiteralReader { cursor: TextCursor { text, at: start } };
    if tag.is_none() && !reader.begins_call() {
        return CallBlock { calls: Vec::new(), len: 0 };
    }
    let mut calls = Vec::new();
    match reader.read_calls(&mut calls) {
        Ok(()) => {
            reader.cursor.skip_blanks();
            let _ = tag.is_some_and(|[_, close]| reader.cursor.accept(close));
            CallBlock { calls, len: reader.cursor.at }
        }
        Err((what, begun)) => {
            let openings = TAGS.map(|[open, _]| open);
            let rest = &text[reader.cursor.at..];
            let next = find_opening(rest, &openings).unwrap_or(rest.len());
            let len = (reader.cursor.at + next).max(1);
            let what = format!("{what}: {}", text_start(&text[begun.max(start)..len]));
            calls.push(BlockCall { call: Err(CallError::Malformed(what)), start: begun });
            CallBlock { calls, len }
        }
    }
}

/// Returns the value of a Python literal that is the whole text.
pub(super) fn read_literal(text: &str) -> Option<Value> {
    let mut reader = LiteralReader { cursor: TextCursor { text, at: 0 } };
    let value = reader.read_value(0).ok()?;
    reader.cursor.skip_blanks();
    (reader.cursor.at == text.len()).then_some(value)
}

/// Reader of Python's literals.
struct LiteralReader<'a> {
    cursor: TextCursor<'a>,
}

impl LiteralReader<'_> {
    /// Skips blanks and a text.
    fn require(&mut self, next: &str) -> Read<()> {
        self.cursor.skip_blanks();
        if self.cursor.accept(next) { Ok(()) } else { Err(format!("`{next}` is missing")) }
    }

    /// Returns true if a list of calls begins here: `[name(`.
    fn begins_call(&self) -> bool {
        let Some(inside) = self.cursor.rest().strip_prefix('[') else { return false };
        let inside = inside.trim_start();
        let name = inside.split('(').next().unwrap_or_default();
        name.len() < inside.len() && is_name(name.trim_end())
    }

    /// Reads a list of calls, up to the first that cannot be read. An error has the position at which that one begins.
    fn read_calls(&mut self, calls: &mut Vec<BlockCall>) -> Result<(), (String, usize)> {
        self.require("[").map_err(|what| (what, 0))?;
        loop {
            self.cursor.skip_blanks();
            let start = self.cursor.at;
            if self.cursor.accept("]") {
                let empty = calls.is_empty().then(|| ("the list has no call".to_owned(), 0));
                return empty.map_or(Ok(()), Err);
            }
            let call = self.read_call().map_err(|what| (what, start))?;
            calls.push(BlockCall { call: Ok(call), start });
            self.cursor.skip_blanks();
            if !self.cursor.accept(",") && !self.cursor.rest().starts_with(']') {
                return Err(("`,` or `]` is missing after a call".to_owned(), self.cursor.at));
            }
        }
    }

    fn read_call(&mut self) -> Read<Call> {
        let name = self.read_name("(")?;
        let mut arguments = Map::new();
        loop {
            self.cursor.skip_blanks();
            if self.cursor.accept(")") {
                return Ok(Call { name, arguments });
            }
            let key = self.read_name("=");
            let key = key.map_err(|_| "an argument is not written `name=value`".to_owned())?;
            let value =
                self.read_value(0).map_err(|what| format!("`{key}` of `{name}`: {what}"))?;
            arguments.insert(key, value);
            self.cursor.skip_blanks();
            if !self.cursor.accept(",") && !self.cursor.rest().starts_with(')') {
                return Err(format!("`,` or `)` is missing after `{name}`'s argument"));
            }
        }
    }

    /// Reads a name and the text after it.
    fn read_name(&mut self, end: &str) -> Read<String> {
        self.cursor.skip_blanks();
        let rest = self.cursor.rest();
        let len =
            rest.find(|c: char| !(c.is_alphanumeric() || "_.-".contains(c))).unwrap_or(rest.len());
        let name = &rest[..len];
        self.cursor.at += len;
        if name.is_empty() {
            return Err("the name of a call is missing".to_owned());
        }
        self.require(end)?;
        Ok(name.to_owned())
    }

    fn read_value(&mut self, depth: usize) -> Read<Value> {
        if depth == DEPTH {
            return Err(format!("more than {DEPTH} levels of values"));
        }
        self.cursor.skip_blanks();
        match self.cursor.rest().chars().next() {
            None => Err("the text ends within a value".to_owned()),
            Some(quote @ ('"' | '\'')) => self.read_text(quote).map(Value::String),
            Some('[') => self.read_items('[', "]", depth).map(Value::Array),
            Some('(') => self.read_items('(', ")", depth).map(Value::Array),
            Some('{') => self.read_dictionary(depth),
            Some(_) => self.read_word(),
        }
    }

    fn read_items(&mut self, open: char, close: &str, depth: usize) -> Read<Vec<Value>> {
        self.cursor.at += open.len_utf8();
        let mut items = Vec::new();
        loop {
            self.cursor.skip_blanks();
            if self.cursor.accept(close) {
                return Ok(items);
            }
            items.push(self.read_value(depth + 1)?);
            self.cursor.skip_blanks();
            if !self.cursor.accept(",") && !self.cursor.rest().starts_with(close) {
                return Err(format!("`,` or `{close}` is missing in a list"));
            }
        }
    }

    fn read_dictionary(&mut self, depth: usize) -> Read<Value> {
        self.cursor.at += 1;
        let mut object = Map::new();
        loop {
            self.cursor.skip_blanks();
            if self.cursor.accept("}") {
                return Ok(Value::Object(object));
            }
            let Some(quote @ ('"' | '\'')) = self.cursor.rest().chars().next() else {
                return Err("a key is no text".to_owned());
            };
            let key = self.read_text(quote)?;
            self.require(":")?;
            object.insert(key, self.read_value(depth + 1)?);
            self.cursor.skip_blanks();
            if !self.cursor.accept(",") && !self.cursor.rest().starts_with('}') {
                return Err("`,` or `}` is missing in a dictionary".to_owned());
            }
        }
    }

    /// Reads a number or a constant.
    fn read_word(&mut self) -> Read<Value> {
        let rest = self.cursor.rest();
        let len =
            rest.find(|c: char| !(c.is_alphanumeric() || "_.+-".contains(c))).unwrap_or(rest.len());
        let word = &rest[..len];
        let value = match word {
            "True" | "true" => Value::Bool(true),
            "False" | "false" => Value::Bool(false),
            "None" | "null" => Value::Null,
            _ => python_number(word).ok_or_else(|| {
                let shown: String = rest.chars().take(20).collect();
                format!("{shown:?} is no value")
            })?,
        };
        self.cursor.at += len;
        Ok(value)
    }

    /// Reads a text in quotes.
    fn read_text(&mut self, quote: char) -> Read<String> {
        self.cursor.at += 1;
        let mut text = String::new();
        loop {
            let rest = self.cursor.rest();
            let Some(len) = rest.find([quote, '\\']) else {
                self.cursor.at = self.cursor.text.len();
                return Err("a text has no end".to_owned());
            };
            text.push_str(&rest[..len]);
            self.cursor.at += len;
            if self.cursor.accept("\\") {
                self.read_escape(&mut text)?;
            } else {
                self.cursor.at += 1;
                return Ok(text);
            }
        }
    }

    /// Reads what follows a backslash.
    fn read_escape(&mut self, text: &mut String) -> Read<()> {
        let Some(escaped) = self.cursor.rest().chars().next() else {
            return Err("a text has no end".to_owned());
        };
        self.cursor.at += escaped.len_utf8();
        match escaped {
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            '0' => text.push('\0'),
            '\n' => {}
            '\\' | '\'' | '"' | '/' => text.push(escaped),
            'x' => text.push(self.read_code(2)?),
            'U' => text.push(self.read_code(8)?),
            'u' => {
                let unit = self.read_digits(4)?;
                // JSON writes characters beyond the first plane as two units.
                let paired = (0xD800..0xDC00).contains(&unit) && self.cursor.accept("\\u");
                let low = if paired { self.read_digits(4)? } else { 0 };
                let code = match low {
                    0xDC00..0xE000 => 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00),
                    _ => unit,
                };
                text.push(char::from_u32(code).ok_or("a text has half a character")?);
            }
            // Python keeps the backslash of an unknown escape.
            other => text.extend(['\\', other]),
        }
        Ok(())
    }

    fn read_code(&mut self, digits: usize) -> Read<char> {
        char::from_u32(self.read_digits(digits)?)
            .ok_or_else(|| "a text has no such character".to_owned())
    }

    fn read_digits(&mut self, digits: usize) -> Read<u32> {
        let code = self
            .cursor
            .rest()
            .get(..digits)
            .filter(|code| code.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = code.and_then(|code| u32::from_str_radix(code, 16).ok());
        self.cursor.at += if code.is_some() { digits } else { 0 };
        code.ok_or_else(|| "a text has a wrong escape".to_owned())
    }
}

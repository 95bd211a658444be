//! Calls of Gemma 4: `<|tool_call>call:NAME{key:<|"|>text<|"|>,n:42,list:[1,{a:true}]}<tool_call|>`.
//!
//! Keys are bare, texts are between quotes of their own and have no escapes.

use serde_json::{Map, Value};

use super::block::{CallBlock, find_opening, is_name, text_start};
use super::cursor::{Read, TextCursor};
use super::number::parse_exactly;
use crate::tools::Call;

const OPEN: &str = "<|tool_call>";
const CLOSE: &str = "<tool_call|>";
const QUOTE: &str = "<|\"|>";
/// Most levels of nested values, as of JSON.
const DEPTH: usize = 128;

/// Reads the call at the beginning of a text.
pub(super) fn read_gemma_calls(text: &str) -> CallBlock {
    let mut reader = GemmaReader { cursor: TextCursor { text, at: OPEN.len() } };
    match reader.read_call() {
        Ok(call) => {
            reader.cursor.skip_blanks();
            reader.cursor.accept(CLOSE);
            CallBlock::single(Ok(call), reader.cursor.at)
        }
        Err(what) => {
            let rest = &text[reader.cursor.at..];
            let len = reader.cursor.at + find_opening(rest, &[OPEN]).unwrap_or(rest.len());
            let shown = text_start(&text[OPEN.len()..len]);
            CallBlock::malformed(format!("{what}: {shown}"), len)
        }
    }
}

struct GemmaReader<'a> {
    cursor: TextCursor<'a>,
}

impl GemmaReader<'_> {
    fn read_call(&mut self) -> Read<Call> {
        self.cursor.skip_blanks();
        if !self.cursor.accept("call:") {
            return Err("`call:NAME` is missing".to_owned());
        }
        let rest = self.cursor.rest();
        let len = rest.find(['{', '<', '\n']).unwrap_or(rest.len());
        let name = rest[..len].trim();
        self.cursor.at += len;
        if !is_name(name) || !self.cursor.rest().starts_with('{') {
            return Err("`call:NAME{..}` is missing".to_owned());
        }
        let arguments =
            self.read_object(0).map_err(|what| format!("arguments of `{name}`: {what}"))?;
        Ok(Call { name: name.to_owned(), arguments })
    }

    fn read_object(&mut self, depth: usize) -> Read<Map<String, Value>> {
        self.cursor.at += 1;
        let mut object = Map::new();
        loop {
            self.cursor.skip_blanks();
            if self.cursor.accept("}") {
                return Ok(object);
            }
            let key = self.read_key()?;
            object.insert(key, self.read_value(depth + 1)?);
            self.end_item('}')?;
        }
    }

    fn read_items(&mut self, depth: usize) -> Read<Vec<Value>> {
        self.cursor.at += 1;
        let mut items = Vec::new();
        loop {
            self.cursor.skip_blanks();
            if self.cursor.accept("]") {
                return Ok(items);
            }
            items.push(self.read_value(depth + 1)?);
            self.end_item(']')?;
        }
    }

    /// Skips a comma, which is missing before the end of a list or an object.
    fn end_item(&mut self, close: char) -> Read<()> {
        self.cursor.skip_blanks();
        if self.cursor.accept(",") || self.cursor.rest().starts_with(close) {
            return Ok(());
        }
        Err(format!("`,` or `{close}` is missing"))
    }

    /// Reads a key, bare or in quotes, and the colon after it.
    fn read_key(&mut self) -> Read<String> {
        let key = if self.cursor.rest().starts_with(QUOTE) {
            let key = self.read_text()?;
            self.cursor.skip_blanks();
            key
        } else {
            let rest = self.cursor.rest();
            let len = rest.find([':', ',', '{', '}', '[', ']', '<']).unwrap_or(rest.len());
            self.cursor.at += len;
            rest[..len].trim().trim_matches('"').to_owned()
        };
        if key.is_empty() || !self.cursor.accept(":") {
            return Err("a key or its `:` is missing".to_owned());
        }
        Ok(key)
    }

    fn read_value(&mut self, depth: usize) -> Read<Value> {
        if depth > DEPTH {
            return Err(format!("more than {DEPTH} levels of values"));
        }
        self.cursor.skip_blanks();
        let rest = self.cursor.rest();
        match rest.chars().next() {
            Some('{') => self.read_object(depth).map(Value::Object),
            Some('[') => self.read_items(depth).map(Value::Array),
            Some(_) if rest.starts_with(QUOTE) => self.read_text().map(Value::String),
            _ => {
                let len = rest.find([',', '}', ']', '<', '\n']).unwrap_or(rest.len());
                let word = rest[..len].trim();
                let value = match word {
                    "True" => Some(Value::Bool(true)),
                    "False" => Some(Value::Bool(false)),
                    "None" => Some(Value::Null),
                    _ => parse_exactly(word).ok(),
                };
                self.cursor.at += len;
                value.ok_or_else(|| format!("{} is no value", text_start(word)))
            }
        }
    }

    /// Reads a text between quotes.
    fn read_text(&mut self) -> Read<String> {
        let start = self.cursor.at + QUOTE.len();
        let Some(len) = self.cursor.text[start..].find(QUOTE) else {
            self.cursor.at = self.cursor.text.len();
            return Err("a text has no end".to_owned());
        };
        self.cursor.at = start + len + QUOTE.len();
        Ok(self.cursor.text[start..start + len].to_owned())
    }
}

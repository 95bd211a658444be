//! Calls with a tag for each argument: Qwen 3.5, MiniMax M2, DeepSeek's DSML, GLM.
//!
//! Values are written as they are. A closing tag inside a value is therefore text, unless another tag of the call, or the
//! end, follows it. Values are typed by the tool's schema (`typed`).

use serde_json::{Map, Value};

use super::block::{BlockCall, CallBlock, find_opening, is_name, text_start};
use super::number::parse_exactly;
use super::typed::{argument_schemas, typed_argument};
use crate::tools::{Call, CallError};

/// Tags of a form. Those that have attributes are without their end.
pub(super) struct XmlForm {
    /// Openings of a group of calls, which may be missing.
    outer: &'static [&'static str],
    /// Ends of a group.
    outer_end: &'static [&'static str],
    call: &'static str,
    call_end: &'static str,
    parameter: &'static str,
    parameter_end: &'static str,
    /// A value is on lines of its own.
    lines: bool,
}

/// Name and kind of a tag, and the text after it.
struct TagHeader<'a> {
    name: &'a str,
    /// Value of the attribute `string`, if it has one.
    is_text: Option<bool>,
    after: &'a str,
}

/// Problem with a call, and the text that was not read.
type WrongCall<'a> = (String, &'a str);

impl XmlForm {
    pub(super) const QWEN: Self = Self {
        outer: &["<tool_call>"],
        outer_end: &["</tool_call>"],
        call: "<function",
        call_end: "</function>",
        parameter: "<parameter",
        parameter_end: "</parameter>",
        lines: true,
    };
    pub(super) const MINIMAX: Self = Self {
        outer: &["<minimax:tool_call>"],
        outer_end: &["</minimax:tool_call>"],
        call: "<invoke",
        call_end: "</invoke>",
        parameter: "<parameter",
        parameter_end: "</parameter>",
        lines: false,
    };
    pub(super) const DSML: Self = Self {
        outer: &["<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"],
        outer_end: &["</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"],
        call: "<｜DSML｜invoke",
        call_end: "</｜DSML｜invoke>",
        parameter: "<｜DSML｜parameter",
        parameter_end: "</｜DSML｜parameter>",
        lines: false,
    };

    /// Reads a group of calls, or calls without their group.
    pub(super) fn read_calls(&self, text: &str, tools: &[Value]) -> CallBlock {
        let inside = strip_any(text, self.outer).unwrap_or(text);
        let (mut calls, mut rest) = (Vec::new(), inside);
        while let Some(header) = rest.trim_start().strip_prefix(self.call) {
            let start = text.len() - header.len() - self.call.len();
            match self.read_call(header, tools) {
                Ok((call, after)) => {
                    calls.push(BlockCall { call: Ok(call), start });
                    rest = after;
                }
                Err((what, after)) => {
                    calls.push(BlockCall { call: Err(CallError::Malformed(what)), start });
                    rest = &after[self.next_group(after)..];
                    return CallBlock { calls, len: text.len() - rest.len() };
                }
            }
        }
        if calls.is_empty() {
            let len = text.len() - inside.len() + self.next_group(inside);
            let inside = &text[text.len() - inside.len()..len];
            let what = format!("there is no `{}` in it: {}", self.call, text_start(inside));
            return CallBlock::malformed(what, len);
        }
        rest = strip_any(rest.trim_start(), self.outer_end).unwrap_or(rest);
        CallBlock { calls, len: text.len() - rest.len() }
    }

    /// Returns the position of the next group or call in a text.
    fn next_group(&self, text: &str) -> usize {
        let outer = self.outer.iter().copied();
        let openings: Vec<&str> = outer.chain([self.call]).collect();
        find_opening(text, &openings).unwrap_or(text.len())
    }

    /// Reads a call after the start of its tag. Its own end may be missing if another call or the end of all follows: at the end of
    /// the reply, a call was cut.
    fn read_call<'a>(
        &self,
        text: &'a str,
        tools: &[Value],
    ) -> Result<(Call, &'a str), WrongCall<'a>> {
        let TagHeader { name, after, .. } = tag_header(text)?;
        let schemas = argument_schemas(tools, name);
        let (mut arguments, mut rest) = (Map::new(), after);
        loop {
            let next = rest.trim_start();
            let Some(header) = next.strip_prefix(self.parameter) else { break };
            let TagHeader { name: key, is_text, after } = tag_header(header)?;
            let (value, after) = self.read_value(key, after)?;
            let schema = schemas.and_then(|schemas| schemas.get(key));
            let value = match is_text {
                None => typed_argument(value, schema),
                Some(true) => Value::String(value.to_owned()),
                Some(false) => {
                    parse_exactly(value.trim()).unwrap_or_else(|_| Value::String(value.to_owned()))
                }
            };
            arguments.insert(key.to_owned(), value);
            rest = after;
        }
        let call = Call { name: name.to_owned(), arguments };
        let next = rest.trim_start();
        if let Some(after) = next.strip_prefix(self.call_end) {
            return Ok((call, after));
        }
        if next.starts_with(self.call) || strip_any(next, self.outer_end).is_some() {
            return Ok((call, rest));
        }
        let what = format!("`{name}` has text outside of its parameters: {}", text_start(next));
        Err((what, next))
    }

    /// Reads the value of a parameter, up to the tag that ends it.
    fn read_value<'a>(
        &self,
        key: &str,
        text: &'a str,
    ) -> Result<(&'a str, &'a str), WrongCall<'a>> {
        let followers = [&[self.parameter, self.call_end, self.call][..], self.outer_end].concat();
        let Some(end) = value_end(text, self.parameter_end, &followers) else {
            let what = format!("the parameter `{key}` has no `{}`", self.parameter_end);
            return Err((what, ""));
        };
        let (value, after) = (&text[..end], &text[end + self.parameter_end.len()..]);
        Ok((if self.lines { without_frame(value) } else { value }, after))
    }
}

/// Tags of GLM.
const GLM: [&str; 6] =
    ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"];

/// Reads a call of GLM, which begins with its opening.
pub(super) fn read_glm_call(text: &str, tools: &[Value]) -> CallBlock {
    let [open, ..] = GLM;
    match read_glm_inside(&text[open.len()..], tools) {
        Ok((call, rest)) => CallBlock::single(Ok(call), text.len() - rest.len()),
        Err((what, rest)) => {
            let next = find_opening(rest, &[open]).unwrap_or(rest.len());
            CallBlock::malformed(what, text.len() - rest.len() + next)
        }
    }
}

/// Reads a name, the arguments and the end of a call.
fn read_glm_inside<'a>(inside: &'a str, tools: &[Value]) -> Result<(Call, &'a str), WrongCall<'a>> {
    let [_, close, key_open, ..] = GLM;
    let end = inside.find(['\n', '<']).unwrap_or(inside.len());
    let (name, mut rest) = (inside[..end].trim(), &inside[end..]);
    let schemas = argument_schemas(tools, name);
    let mut arguments = Map::new();
    while let Some(argument) = rest.trim_start().strip_prefix(key_open) {
        let read = read_glm_argument(argument);
        let (key, value, after) = read.map_err(|what| (what, ""))?;
        let schema = schemas.and_then(|schemas| schemas.get(key));
        arguments.insert(key.to_owned(), typed_argument(value, schema));
        rest = after;
    }
    let next = rest.trim_start();
    if !is_name(name) || !next.starts_with(close) {
        return Err((format!("it is no name and arguments: {}", text_start(inside)), next));
    }
    let call = Call { name: name.to_owned(), arguments };
    Ok((call, next.strip_prefix(close).unwrap_or(next)))
}

/// Reads a key, its value, and the text after both.
fn read_glm_argument(text: &str) -> Result<(&str, &str, &str), String> {
    let [_, close, key_open, key_close, value_open, value_close] = GLM;
    let Some((key, after)) = text.split_once(key_close) else {
        return Err(format!("an `{key_open}` has no `{key_close}`: {}", text_start(text)));
    };
    let Some(value) = after.trim_start().strip_prefix(value_open) else {
        return Err(format!("the argument `{key}` has no `{value_open}`"));
    };
    let Some(end) = value_end(value, value_close, &[key_open, close]) else {
        return Err(format!("the argument `{key}` has no `{value_close}`"));
    };
    Ok((key, &value[..end], &value[end + value_close.len()..]))
}

/// Reads the rest of a tag after its name: `=NAME>`, or `name="NAME" string="true">`.
fn tag_header(text: &str) -> Result<TagHeader<'_>, WrongCall<'_>> {
    let end = text.find(['>', '\n']).unwrap_or(text.len());
    let (header, after) = text.split_at(end);
    let wrong = || (format!("a tag has no name: {}", text_start(header)), after);
    let after = after.strip_prefix('>').ok_or_else(wrong)?;
    let name = match header.strip_prefix('=') {
        Some(name) => Some(name.trim().trim_matches('"')),
        None => attribute(header, "name=\""),
    };
    let is_text = attribute(header, "string=\"").map(|value| value == "true");
    match name {
        Some(name) if !name.is_empty() => Ok(TagHeader { name, is_text, after }),
        _ => Err(wrong()),
    }
}

/// Returns the value of an attribute, `start` up to its quote.
fn attribute<'a>(header: &'a str, start: &str) -> Option<&'a str> {
    let (_, value) = header.split_once(start)?;
    value.split('"').next()
}

/// Returns the position of the closing tag after which another tag, or nothing, follows.
fn value_end(text: &str, close: &str, followers: &[&str]) -> Option<usize> {
    let mut places = text.match_indices(close).map(|(at, _)| at);
    places.find(|at| {
        let next = text[at + close.len()..].trim_start();
        next.is_empty() || followers.iter().any(|tag| next.starts_with(tag))
    })
}

/// Removes the end of a line at each side.
fn without_frame(value: &str) -> &str {
    let value = value.strip_prefix('\n').unwrap_or(value);
    value.strip_suffix('\n').unwrap_or(value)
}

/// Removes one of these texts at the front.
fn strip_any<'a>(text: &'a str, starts: &[&str]) -> Option<&'a str> {
    starts.iter().find_map(|start| text.strip_prefix(start))
}

//! Calls as a name and a JSON object of arguments, in tokens of their own: Mistral from version 11 on, DeepSeek, Kimi.

use super::block::{BlockCall, CallBlock, find_opening, is_name, text_start};
use super::json::read_arguments;
use crate::tools::{Call, CallError};

/// Tokens of a form.
pub(super) struct NamedForm {
    /// Tokens around all calls, which may be missing; empty texts if the form has none.
    outer: [&'static str; 2],
    /// Token before a call.
    open: &'static str,
    /// Token between the name, or the kind, and the arguments.
    separator: &'static str,
    /// Token after a call; an empty text if the form has none.
    close: &'static str,
    /// Place of the name.
    place: NamePlace,
}

/// Place of the name of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NamePlace {
    /// Before the separator, up to this text.
    Before(&'static str),
    /// Before the separator, as `functions.NAME:INDEX`.
    Indexed,
    /// After the separator, on a line of its own.
    After,
}

impl NamedForm {
    pub(super) const MISTRAL: Self = Self {
        outer: ["", ""],
        open: "[TOOL_CALLS]",
        separator: "[ARGS]",
        close: "",
        place: NamePlace::Before("[CALL_ID]"),
    };
    pub(super) const DEEPSEEK_V3: Self = Self {
        outer: ["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"],
        open: "<｜tool▁call▁begin｜>",
        separator: "<｜tool▁sep｜>",
        close: "<｜tool▁call▁end｜>",
        place: NamePlace::After,
    };
    pub(super) const DEEPSEEK_V31: Self =
        Self { place: NamePlace::Before("<｜tool▁sep｜>"), ..Self::DEEPSEEK_V3 };
    pub(super) const KIMI: Self = Self {
        outer: ["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"],
        open: "<|tool_call_begin|>",
        separator: "<|tool_call_argument_begin|>",
        close: "<|tool_call_end|>",
        place: NamePlace::Indexed,
    };

    /// Reads the calls at the beginning of a text.
    pub(super) fn read_calls(&self, text: &str) -> CallBlock {
        let [outer, outer_end] = self.outer;
        let inside = strip_mark(text, outer);
        let (mut calls, mut rest) = (Vec::new(), inside);
        while let Some(call) = rest.trim_start().strip_prefix(self.open) {
            let start = text.len() - call.len() - self.open.len();
            match self.read_call(call) {
                Ok((call, after)) => {
                    calls.push(BlockCall { call: Ok(call), start });
                    rest = strip_mark(after.trim_start(), self.close);
                }
                Err((what, after)) => {
                    calls.push(BlockCall { call: Err(CallError::Malformed(what)), start });
                    rest = &after[self.next_call(after)..];
                    return CallBlock { calls, len: text.len() - rest.len() };
                }
            }
        }
        if calls.is_empty() {
            let len = text.len() - inside.len() + self.next_call(inside);
            let what = format!("there is no `{}` in it: {}", self.open, text_start(inside));
            return CallBlock::malformed(what, len.max(1));
        }
        rest = strip_mark(rest.trim_start(), outer_end);
        CallBlock { calls, len: text.len() - rest.len() }
    }

    /// Returns the position of the next call in a text.
    fn next_call(&self, text: &str) -> usize {
        let openings = [self.open, self.outer[0]];
        let openings = if openings[1].is_empty() { &openings[..1] } else { &openings };
        find_opening(text, openings).unwrap_or(text.len())
    }

    /// Reads a call after its token. An error has the text that was not read.
    fn read_call<'a>(&self, text: &'a str) -> Result<(Call, &'a str), (String, &'a str)> {
        let Some((before, after)) = self.split_header(text) else {
            let what = format!("a call has no `{}`: {}", self.separator, text_start(text));
            return Err((what, &text[self.next_call(text)..]));
        };
        let (name, written) = match self.place {
            NamePlace::Before(end) => (before.split(end).next().unwrap_or_default(), after),
            NamePlace::Indexed => (indexed_name(before.trim()), after),
            NamePlace::After => {
                after.split_at(after.find(['\n', '`', '<', '{']).unwrap_or(after.len()))
            }
        };
        let name = name.trim();
        if !is_name(name) {
            return Err((format!("a call has no name: {}", text_start(text)), after));
        }
        let (fenced, written) = strip_fence(written);
        match read_arguments(written) {
            Ok((arguments, len)) => {
                let after = &written[len..];
                let after = if fenced { strip_mark(after.trim_start(), "```") } else { after };
                Ok((Call { name: name.to_owned(), arguments }, after))
            }
            Err((what, len)) => Err((format!("arguments of `{name}`: {what}"), &written[len..])),
        }
    }

    /// Divides a call at its separator, which is before the next call.
    fn split_header<'a>(&self, text: &'a str) -> Option<(&'a str, &'a str)> {
        let at = find_opening(text, &[self.separator, self.open])?;
        let after = text[at..].strip_prefix(self.separator)?;
        Some((&text[..at], after))
    }
}

/// Returns the name in `functions.NAME:INDEX`, of which the first and the last part may be missing.
fn indexed_name(id: &str) -> &str {
    let id = id.strip_prefix("functions.").unwrap_or(id);
    match id.rsplit_once(':') {
        Some((name, index)) if index.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => id,
    }
}

/// Removes a text at the front, if it is there.
fn strip_mark<'a>(text: &'a str, mark: &str) -> &'a str {
    text.strip_prefix(mark).unwrap_or(text)
}

/// Removes the line that opens a fence. Returns true if there is one.
fn strip_fence(text: &str) -> (bool, &str) {
    match text.trim_start().strip_prefix("```") {
        Some(rest) => (true, rest.split_once('\n').map_or("", |(_, inside)| inside)),
        None => (false, text),
    }
}

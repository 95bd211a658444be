//! Replies as agents and environments read them: calls in Hermes' form with typed arguments, thoughts in `<think>`.
//!
//! Parsing of replies therefore does not depend on the model, and a recorded turn has its reply as it was sampled.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::channels::{Channel, split_channels};
use super::json::UNREADABLE;
use super::thoughts::SplitReply;
use super::{CallFormat, ReplyFormat, split_calls};
use crate::tools::{Call, CallError};

impl ReplyFormat {
    /// Returns a reply as agents read it. `prompt` is the prompt as the template rendered it, and `tools` are the
    /// declarations in it.
    pub fn canonical_reply<'r>(
        &self,
        reply: &'r str,
        prompt: &str,
        tools: &[Value],
    ) -> Cow<'r, str> {
        if self.is_plain() {
            return Cow::Borrowed(reply);
        }
        let mut text = String::with_capacity(reply.len());
        if self.calls == CallFormat::Harmony {
            let called = push_channels(reply, &mut text);
            return Cow::Owned(if called { text } else { without_call(text) });
        }
        let answer = self.push_thoughts(reply, prompt, &mut text);
        if self.calls.is_json() {
            text.push_str(answer);
            return Cow::Owned(text);
        }
        let mut called = false;
        for segment in split_calls(answer, self.calls, tools) {
            called |= segment.call.is_some();
            match &segment.call {
                None => push_text(segment.text, &mut text),
                Some(call) => push_call(call, &mut text),
            }
        }
        Cow::Owned(if called { text } else { without_call(text) })
    }

    /// Adds the thoughts of a reply, and returns its answer.
    fn push_thoughts<'r>(&self, reply: &'r str, prompt: &str, text: &mut String) -> &'r str {
        if !self.has_thoughts {
            return reply;
        }
        let thinking = self.begins_within_thoughts(prompt);
        let SplitReply { thoughts, closed, answer } = self.thoughts.split_thoughts(reply, thinking);
        match thoughts {
            Some(_) if self.thoughts.is_think() => {
                text.push_str(&reply[..reply.len() - answer.len()])
            }
            Some(thoughts) if closed => {
                text.push_str(&format!("<think>\n{thoughts}\n</think>\n\n"))
            }
            Some(thoughts) => text.push_str(&format!("<think>\n{thoughts}")),
            None => {}
        }
        answer
    }
}

/// Adds the messages of a reply of gpt-oss. Returns true if one is a call.
fn push_channels(reply: &str, text: &mut String) -> bool {
    let mut called = false;
    for part in split_channels(reply) {
        called |= part.channel != Channel::Thoughts && part.call.is_some();
        match (part.channel, part.call) {
            (Channel::Thoughts, _) => {
                text.push_str(&format!("<think>\n{}\n</think>\n\n", part.body))
            }
            (_, Some(call)) => push_call(&call, text),
            (_, None) => push_text(part.body, text),
        }
    }
    called
}

/// Adds text that is no call in the form of the model. A tag of Hermes' form in it, such as one of a page that the model quotes, gets a
/// blank, so that agents do not read a call.
fn push_text(part: &str, text: &mut String) {
    text.push_str(&part.replace("<tool_call>", "<tool_call >"));
}

/// Returns a reply without calls so that agents read none: a bare object of a name and arguments is named a text.
fn without_call(text: String) -> String {
    if super::read(&text).is_empty() { text } else { format!("Text: {text}") }
}

fn push_call(call: &Result<Call, CallError>, text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    match call {
        Ok(Call { name, arguments }) => {
            let object = json!({"name": name, "arguments": arguments});
            text.push_str(&format!("<tool_call>\n{object}\n</tool_call>"));
        }
        Err(CallError::Malformed(what)) => text.push_str(&unreadable_call(what)),
        Err(error) => text.push_str(&unreadable_call(&error.to_string())),
    }
}

/// Returns the text of a call that cannot be read, from which [`read`](super::read) returns the same error.
pub fn unreadable_call(what: &str) -> String {
    format!("<tool_call>\n{}\n</tool_call>", json!({ UNREADABLE: what }))
}

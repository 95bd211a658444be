//! Replies of gpt-oss: messages with a channel each, of thoughts (`analysis`), of the answer, or to a tool.
//!
//! A message is `<|start|>assistant<|channel|>CHANNEL to=functions.NAME <|constrain|>json<|message|>BODY<|end|>`. The prompt
//! ends with `<|start|>assistant`, so the first message of a reply lacks it. The recipient may also come before the channel.

use super::block::{CallBlock, find_opening, is_name, text_start};
use super::json::read_arguments;
use crate::tools::{Call, CallError};

const MESSAGE: &str = "<|message|>";
const CHANNEL: &str = "<|channel|>";
/// Starts of a message.
const STARTS: [&str; 2] = ["<|start|>", CHANNEL];
/// Ends of a body that belong to its message.
const ENDS: [&str; 3] = ["<|end|>", "<|call|>", "<|return|>"];
/// Greatest length in bytes of what precedes a body.
const LONGEST_HEADER: usize = 400;

/// Receiver of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel<'a> {
    /// Thoughts.
    Thoughts,
    /// The answer, or text to the user before calls.
    Content,
    /// The tool of this name, which may be none that a tool can have.
    Tool(&'a str),
}

/// Beginning of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelHeader<'a> {
    /// Receiver of the message.
    pub channel: Channel<'a>,
    /// Length in bytes, with `<|message|>`.
    pub len: usize,
}

impl<'a> ChannelHeader<'a> {
    /// Texts that end a body.
    pub const BODY_ENDS: [&'static str; 5] =
        ["<|end|>", "<|call|>", "<|return|>", "<|start|>", CHANNEL];

    /// Reads what precedes a body; `None` if the text begins with something else, or lacks `<|message|>`.
    pub fn read(text: &'a str) -> Option<Self> {
        if !Self::may_begin(text) {
            return None;
        }
        let most = text.floor_char_boundary(LONGEST_HEADER);
        let at = text[..most].find(MESSAGE)?;
        let header = &text[..at];
        let recipient = header.split_once("to=").map(|(_, name)| {
            let end = name.find(|c: char| c.is_whitespace() || c == '<').unwrap_or(name.len());
            name[..end].strip_prefix("functions.").unwrap_or(&name[..end])
        });
        let channel = header.split_once(CHANNEL).map_or("", |(_, rest)| rest.trim_start());
        let channel = match recipient {
            Some(name) => Channel::Tool(name),
            None if channel.starts_with("analysis") => Channel::Thoughts,
            None => Channel::Content,
        };
        Some(Self { channel, len: at + MESSAGE.len() })
    }

    /// Returns true if a text begins as a message does, or is the beginning of such a text.
    pub fn may_begin(text: &str) -> bool {
        let text = text.trim_start();
        let starts = STARTS.into_iter().chain(["to="]);
        starts.into_iter().any(|start| text.starts_with(start) || start.starts_with(text))
    }

    /// Returns true if a text that may begin a message needs no more text to be read.
    pub fn is_decided(text: &str) -> bool {
        !Self::may_begin(text) || text.contains(MESSAGE) || text.len() > LONGEST_HEADER
    }
}

/// A message of a reply.
pub struct ChannelPart<'a> {
    /// Its receiver.
    pub channel: Channel<'a>,
    /// Its text.
    pub body: &'a str,
    /// The message as it was written.
    pub text: &'a str,
    /// The call of a message to a tool.
    pub call: Option<Result<Call, CallError>>,
}

/// Divides a reply into its messages. Text without a header is content.
pub fn split_channels(reply: &str) -> Vec<ChannelPart<'_>> {
    let (mut parts, mut rest) = (Vec::new(), reply);
    while !rest.is_empty() {
        let part = first_part(rest);
        rest = &rest[part.text.len()..];
        parts.push(part);
    }
    parts
}

/// Reads the first message of a text that is not empty.
fn first_part(text: &str) -> ChannelPart<'_> {
    let Some(header) = ChannelHeader::read(text) else {
        let skipped = text.chars().next().map_or(0, char::len_utf8);
        let end = find_opening(&text[skipped..], &STARTS).map_or(text.len(), |at| at + skipped);
        return ChannelPart {
            channel: Channel::Content,
            body: &text[..end],
            text: &text[..end],
            call: None,
        };
    };
    let body = &text[header.len..];
    let (call, read) = match header.channel {
        Channel::Tool(name) if !is_name(name) => {
            let what = format!("a call has no name: {}", text_start(text));
            (Some(Err(CallError::Malformed(what))), 0)
        }
        Channel::Tool(name) => match read_arguments(body) {
            Ok((arguments, len)) => (Some(Ok(Call { name: name.to_owned(), arguments })), len),
            Err((what, len)) => {
                let what = format!("arguments of `{name}`: {what}: {}", text_start(body));
                (Some(Err(CallError::Malformed(what))), len)
            }
        },
        _ => (None, 0),
    };
    let end = find_opening(&body[read..], &ChannelHeader::BODY_ENDS);
    let end = end.map_or(body.len(), |at| at + read);
    let closing = ENDS.iter().find(|close| body[end..].starts_with(**close));
    let len = header.len + end + closing.map_or(0, |close| close.len());
    ChannelPart { channel: header.channel, body: &body[..end], text: &text[..len], call }
}

/// Reads the message at the beginning of a text.
pub(super) fn read_channel_calls(text: &str) -> CallBlock {
    let part = first_part(text);
    let len = part.text.len();
    part.call.map_or(CallBlock { calls: Vec::new(), len }, |call| CallBlock::single(call, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_names_the_receiver_of_a_message() {
        for (text, channel) in [
            ("<|channel|>analysis<|message|>", Channel::Thoughts),
            ("<|channel|>final<|message|>", Channel::Content),
            ("<|start|>assistant<|channel|>commentary<|message|>", Channel::Content),
            (
                "<|channel|>commentary to=functions.add <|constrain|>json<|message|>",
                Channel::Tool("add"),
            ),
            (" to=functions.add<|channel|>commentary json<|message|>", Channel::Tool("add")),
            ("<|channel|>analysis to=functions.<|message|>", Channel::Tool("")),
        ] {
            let header = ChannelHeader::read(text);
            assert_eq!(header, Some(ChannelHeader { channel, len: text.len() }), "{text}");
        }
        for text in ["", "to be", "<|channel|>final", "an answer<|message|>"] {
            assert_eq!(ChannelHeader::read(text), None, "{text}");
        }
    }
}

//! Calls at the end of a reply, and texts beside them.

use maverl::tools::{self, Call, CallSegment, Channel};

use super::part::{ReplyPart, add_part};

/// Tag of a call in Hermes' form.
const CALL: &str = "<tool_call>";
/// End of a tagged call.
const CALLED: &str = "</tool_call>";

/// Reads calls in tags. One that cannot be read stays in the content, as does text after a call.
pub(super) fn read_tagged_calls(text: &str, most: usize, parts: &mut Vec<ReplyPart>) {
    let mut told = CallsAndText::default();
    for tag in tools::tagged_calls(text) {
        if tag.calls.iter().all(|segment| matches!(segment.call, Some(Err(_)))) {
            told.content.push_str(tag.text);
            continue;
        }
        tag.calls.into_iter().for_each(|segment| told.add_segment(segment));
        let after = tag.after.rsplit_once(CALLED).map_or("", |(_, after)| after);
        if !after.trim().is_empty() {
            told.content.push_str(after);
        }
    }
    told.add_to(most, parts);
}

/// Adds texts and calls. A call that cannot be read stays in the content.
pub(super) fn read_segments(
    segments: Vec<CallSegment<'_>>,
    most: usize,
    parts: &mut Vec<ReplyPart>,
) {
    let mut told = CallsAndText::default();
    segments.into_iter().for_each(|segment| told.add_segment(segment));
    told.add_to(most, parts);
}

/// Calls of a reply, and the text beside them.
#[derive(Default)]
struct CallsAndText {
    content: String,
    calls: Vec<Call>,
}

impl CallsAndText {
    fn add_segment(&mut self, segment: CallSegment<'_>) {
        match segment.call {
            Some(Ok(call)) => self.calls.push(call),
            // Blanks between calls are no content.
            None if segment.text.trim().is_empty() => {}
            _ => self.content.push_str(segment.text),
        }
    }

    fn add_to(self, most: usize, parts: &mut Vec<ReplyPart>) {
        add_part(parts, ReplyPart::Content(self.content));
        parts.extend(self.calls.into_iter().take(most).map(ReplyPart::Call));
    }
}

/// Adds the messages of a reply from the first one to a tool on.
pub(super) fn read_channel_calls(text: &str, most: usize, parts: &mut Vec<ReplyPart>) {
    let mut calls = 0;
    for message in tools::split_channels(text) {
        match (message.channel, message.call) {
            (Channel::Thoughts, _) => {
                add_part(parts, ReplyPart::Reasoning(message.body.to_owned()))
            }
            (_, Some(Ok(call))) => {
                calls += 1;
                parts.extend((calls <= most).then_some(ReplyPart::Call(call)));
            }
            // As it was written: its body alone would not say that it is a call.
            (_, Some(Err(_))) => add_part(parts, ReplyPart::Content(message.text.to_owned())),
            (_, None) => add_part(parts, ReplyPart::Content(message.body.to_owned())),
        }
    }
}

/// Reads a reply that may be a call without a tag. If it is none, it is content.
pub(super) fn read_bare_calls(text: &str, most: usize, parts: &mut Vec<ReplyPart>) {
    // Both forms of JSON are read of every model.
    if let Some(at) = text.find(CALL).filter(|_| tools::whole_calls(text).is_none()) {
        add_part(parts, ReplyPart::Content(text[..at].to_owned()));
        return read_tagged_calls(&text[at..], most, parts);
    }
    let segments = tools::bare_calls(text);
    if segments.iter().any(|segment| matches!(segment.call, Some(Ok(_)))) {
        read_segments(segments, most, parts);
    } else {
        add_part(parts, ReplyPart::Content(text.to_owned()));
    }
}

//! Calls at the end of a reply, and texts beside them.

use maverl::tools::{self, Call, CallFormat, Channel};

use super::part::{ReplyPart, add_part};

/// Tag of a call in Hermes' form.
const CALL: &str = "<tool_call>";
/// End of a tagged call.
const CALLED: &str = "</tool_call>";

/// Reads calls in tags. One that cannot be read stays in the content, as does text after a call.
pub(super) fn read_tagged_calls(text: &str, most: usize, parts: &mut Vec<ReplyPart>) {
    let (mut content, mut calls) = (String::new(), Vec::new());
    for tag in tools::tagged_calls(text) {
        let read: Result<Vec<Call>, _> = tag.calls.into_iter().collect();
        let Ok(read) = read else {
            content.push_str(tag.text);
            continue;
        };
        calls.extend(read);
        let after = tag.after.rsplit_once(CALLED).map_or("", |(_, after)| after);
        if !after.trim().is_empty() {
            content.push_str(after);
        }
    }
    add_part(parts, ReplyPart::Content(content));
    parts.extend(calls.into_iter().take(most).map(ReplyPart::Call));
}

/// Adds texts and calls. A call that cannot be read stays in the content.
pub(super) fn read_segments(
    segments: Vec<tools::CallSegment<'_>>,
    most: usize,
    parts: &mut Vec<ReplyPart>,
) {
    let (mut content, mut calls) = (String::new(), Vec::new());
    for segment in segments {
        let read: Result<Vec<Call>, _> = segment.calls.into_iter().collect();
        match read {
            Ok(read) if !read.is_empty() => calls.extend(read),
            // Blanks between calls are no content.
            Ok(_) if segment.text.trim().is_empty() => {}
            _ => content.push_str(segment.text),
        }
    }
    add_part(parts, ReplyPart::Content(content));
    parts.extend(calls.into_iter().take(most).map(ReplyPart::Call));
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
            _ => add_part(parts, ReplyPart::Content(message.body.to_owned())),
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
    let read: Result<Vec<Call>, _> =
        tools::calls(text, CallFormat::Llama3Json, &[]).into_iter().collect();
    match read {
        Ok(calls) if !calls.is_empty() => {
            parts.extend(calls.into_iter().take(most).map(ReplyPart::Call))
        }
        _ => add_part(parts, ReplyPart::Content(text.to_owned())),
    }
}

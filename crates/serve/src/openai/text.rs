//! The text of a reply while it is sampled: reasoning, content and calls, cut at stop strings.
//!
//! Text that may still become something else is held back: incomplete characters, the beginning of a stop string or tag,
//! and everything from a tool tag on. The parts joined are therefore the parts of the whole reply, however it is cut.

use maverl::text::Detokenizer;
use maverl::tools::{self, Call, Format};

/// End of the thoughts of a reasoning model.
const THOUGHT: &str = "</think>";
/// Start of its thoughts.
const THINK: &str = "<think>";
/// Tag of a call.
const CALL: &str = "<tool_call>";
/// End of a tagged call.
const CALLED: &str = "</tool_call>";
/// Tag of a call in Llama 3's format.
const PYTHON: &str = "<|python_tag|>";
/// First characters of a reply that is a call without a tag.
const BARE: [&str; 4] = ["{", "[", "```", PYTHON];

/// A part of a reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ReplyPart {
    /// Text before the end of the thoughts.
    Reasoning(String),
    /// Text of the answer.
    Content(String),
    /// A call.
    Call(Call),
}

impl ReplyPart {
    /// Adds parts to others. Texts of one kind that follow each other become one part, and so one event of a stream.
    pub(crate) fn append(parts: &mut Vec<Self>, more: Vec<Self>) {
        for part in more {
            match (parts.last_mut(), part) {
                (Some(Self::Content(text)), Self::Content(more))
                | (Some(Self::Reasoning(text)), Self::Reasoning(more)) => text.push_str(&more),
                (_, part) => parts.push(part),
            }
        }
    }
}

/// Expected parts of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ReplyTextShape {
    /// The prompt ends within thoughts, so that the reply begins with them.
    pub(crate) thinking: bool,
    /// Thoughts are told from the answer.
    pub(crate) thoughts: bool,
    /// Maximum number of calls; 0 reads none.
    pub(crate) calls: usize,
    /// Calls have tags: a reply that begins as one without a tag is an answer in JSON.
    pub(crate) tagged: bool,
}

/// Stage of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyStage {
    /// Nothing but blanks yet.
    Start,
    /// After the tag of thoughts; nothing but ends of lines yet.
    Opened,
    Thoughts,
    /// After the thoughts; nothing but blanks yet.
    Answer,
    Text,
    /// From a tool tag on.
    Calls,
    /// From the start of a reply that may be a call without a tag.
    BareCall,
}

/// Reader of a reply.
pub(crate) struct ReplyText<'a> {
    decoder: Option<Detokenizer<'a>>,
    stops: &'a [String],
    shape: ReplyTextShape,
    stage: ReplyStage,
    /// Text that is not given out yet.
    held: String,
    /// The stop string that was found.
    stop: Option<String>,
}

impl<'a> ReplyText<'a> {
    /// Creates a reader of what `decoder` decodes, up to the first of `stops`.
    pub(crate) fn new(
        decoder: Detokenizer<'a>,
        stops: &'a [String],
        shape: ReplyTextShape,
    ) -> Self {
        let stage = Self::first_stage(shape);
        Self { decoder: Some(decoder), stops, shape, stage, held: String::new(), stop: None }
    }

    fn first_stage(shape: ReplyTextShape) -> ReplyStage {
        match shape {
            ReplyTextShape { thoughts: false, calls: 0, .. } => ReplyStage::Text,
            ReplyTextShape { thoughts: true, thinking: true, .. } => ReplyStage::Thoughts,
            _ => ReplyStage::Start,
        }
    }

    /// Returns the parts of a whole reply that was decoded already.
    pub(crate) fn whole_reply(
        reply: &str,
        stops: &'a [String],
        shape: ReplyTextShape,
    ) -> Vec<ReplyPart> {
        let stage = Self::first_stage(shape);
        let (held, decoder, stop) = (String::new(), None, None);
        let mut text = Self { decoder, stops, shape, stage, held, stop };
        text.read(reply);
        text.take(true)
    }

    /// Reads a sampled token; returns the parts that are certain.
    pub(crate) fn push(&mut self, id: u32) -> Vec<ReplyPart> {
        let text = self.decoder.as_mut().map(|decoder| decoder.push(id)).unwrap_or_default();
        self.read(&text);
        self.take(false)
    }

    /// Ends the reply; returns the parts that were held back.
    pub(crate) fn finish(&mut self) -> Vec<ReplyPart> {
        if let Some(decoder) = self.decoder.take() {
            let text = decoder.finish();
            self.read(&text);
        }
        self.take(true)
    }

    /// Returns the stop string that ended the reply.
    pub(crate) fn stop(&self) -> Option<&str> {
        self.stop.as_deref()
    }

    /// Adds text, up to a stop string.
    fn read(&mut self, text: &str) {
        if self.stop.is_some() {
            return;
        }
        // The beginning of a stop string is held back, so that it is found here however the text is cut.
        self.held.push_str(text);
        let found =
            self.stops.iter().filter_map(|stop| Some((self.held.find(stop.as_str())?, stop)));
        if let Some((at, stop)) = found.min_by_key(|&(at, stop)| (at, stop.len())) {
            self.held.truncate(at);
            self.stop = Some(stop.clone());
        }
    }

    /// Gives out what is certain; with `end`, everything.
    fn take(&mut self, end: bool) -> Vec<ReplyPart> {
        let end = end || self.stop.is_some();
        let stops = self.stops.iter().map(|stop| overlap(&self.held, stop));
        let kept = if end { 0 } else { stops.max().unwrap_or(0) };
        let tail = self.held.split_off(self.held.len() - kept);
        let mut parts = Vec::new();
        while self.advance(end, &mut parts) {}
        self.held.push_str(&tail);
        parts
    }

    /// Gives out the next part, or enters the next stage. Returns false if there is nothing more to do.
    fn advance(&mut self, end: bool, parts: &mut Vec<ReplyPart>) -> bool {
        match self.stage {
            ReplyStage::Start => self.start(end),
            ReplyStage::Opened => {
                if !self.skip_ends_of_lines() {
                    return false;
                }
                self.stage = ReplyStage::Thoughts;
                true
            }
            ReplyStage::Answer => {
                if !self.skip_ends_of_lines() {
                    return false;
                }
                self.stage =
                    if self.shape.calls > 0 { ReplyStage::Start } else { ReplyStage::Text };
                self.shape.thoughts = false;
                true
            }
            ReplyStage::Thoughts => match self.held.find(THOUGHT) {
                Some(at) => {
                    let thoughts = self.held[..at].to_owned();
                    self.held.drain(..at + THOUGHT.len());
                    push(parts, ReplyPart::Reasoning(thoughts));
                    self.stage = ReplyStage::Answer;
                    true
                }
                None => self.give(THOUGHT, end, ReplyPart::Reasoning, parts),
            },
            ReplyStage::Text if self.shape.calls > 0 => match self.held.find(CALL) {
                Some(at) => {
                    push(parts, ReplyPart::Content(self.held[..at].to_owned()));
                    self.held.drain(..at);
                    self.stage = ReplyStage::Calls;
                    true
                }
                None => self.give(CALL, end, ReplyPart::Content, parts),
            },
            ReplyStage::Text => self.give("", end, ReplyPart::Content, parts),
            ReplyStage::Calls | ReplyStage::BareCall => {
                if end && !self.held.is_empty() {
                    let held = std::mem::take(&mut self.held);
                    match self.stage {
                        ReplyStage::Calls => read_tagged_calls(&held, self.shape.calls, parts),
                        _ => bare(&held, self.shape.calls, parts),
                    }
                }
                false
            }
        }
    }

    /// Drops ends of lines at the front of the held text. Returns true if there is more.
    fn skip_ends_of_lines(&mut self) -> bool {
        let blank = self.held.len() - self.held.trim_start_matches(['\n', '\r']).len();
        self.held.drain(..blank);
        !self.held.is_empty()
    }

    /// Decides how a reply, or an answer after thoughts, begins.
    fn start(&mut self, end: bool) -> bool {
        let said = self.held.trim_start();
        if said.is_empty() {
            self.stage = if end { ReplyStage::Text } else { ReplyStage::Start };
            return end && !self.held.is_empty();
        }
        if self.shape.thoughts && said.starts_with(THINK) {
            let at = self.held.len() - said.len() + THINK.len();
            self.held.drain(..at);
            self.stage = ReplyStage::Opened;
            return true;
        }
        let bare = self.shape.calls > 0 && !self.shape.tagged;
        if bare && BARE.iter().any(|start| said.starts_with(start)) {
            self.stage = ReplyStage::BareCall;
            return true;
        }
        let tags = BARE.iter().filter(|_| bare);
        let tags = tags.chain([&THINK].into_iter().filter(|_| self.shape.thoughts));
        let undecided = tags.into_iter().any(|tag| tag.starts_with(said));
        if undecided && !end {
            return false;
        }
        self.stage = ReplyStage::Text;
        true
    }

    /// Gives out the held text but for what may become a tag.
    fn give(
        &mut self,
        tag: &str,
        end: bool,
        part: impl Fn(String) -> ReplyPart,
        parts: &mut Vec<ReplyPart>,
    ) -> bool {
        let kept = if end { 0 } else { overlap(&self.held, tag) };
        let given: String = self.held.drain(..self.held.len() - kept).collect();
        push(parts, part(given));
        false
    }
}

/// Adds a part, unless it is an empty text.
fn push(parts: &mut Vec<ReplyPart>, part: ReplyPart) {
    let empty =
        matches!(&part, ReplyPart::Reasoning(text) | ReplyPart::Content(text) if text.is_empty());
    if !empty {
        parts.push(part);
    }
}

/// Returns the length of the longest end of `text` that is a beginning of `tag`.
fn overlap(text: &str, tag: &str) -> usize {
    let most = text.len().min(tag.len().saturating_sub(1));
    (1..=most).rev().find(|&n| tag.is_char_boundary(n) && text.ends_with(&tag[..n])).unwrap_or(0)
}

/// Reads calls in tags. One that cannot be read stays in the content, as does text after a call.
fn read_tagged_calls(text: &str, most: usize, parts: &mut Vec<ReplyPart>) {
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
    push(parts, ReplyPart::Content(content));
    parts.extend(calls.into_iter().take(most).map(ReplyPart::Call));
}

/// Reads a reply that may be a call without a tag. If it is none, it is content.
fn bare(text: &str, most: usize, parts: &mut Vec<ReplyPart>) {
    if let Some(at) = text.find(CALL).filter(|_| tools::whole_calls(text).is_none()) {
        push(parts, ReplyPart::Content(text[..at].to_owned()));
        return read_tagged_calls(&text[at..], most, parts);
    }
    let read: Result<Vec<Call>, _> = tools::calls(text, Format::Llama3).into_iter().collect();
    match read {
        Ok(calls) if !calls.is_empty() => {
            parts.extend(calls.into_iter().take(most).map(ReplyPart::Call))
        }
        _ => push(parts, ReplyPart::Content(text.to_owned())),
    }
}

#[cfg(test)]
mod tests;

//! The text of a reply while it is sampled: reasoning, content and calls, cut at stop strings.
//!
//! Text that may still become something else is held back: incomplete characters, the beginning of a stop string or tag,
//! and everything from a tool tag on. The parts joined are therefore the parts of the whole reply, however it is cut.

mod calls;
mod part;

use std::sync::Arc;

use calls::{read_bare_calls, read_channel_calls, read_segments, read_tagged_calls};
use maverl::text::Detokenizer;
use maverl::tools::{self, CallFormat, Channel, ChannelHeader, ReplyFormat};
pub(crate) use part::ReplyPart;
use part::add_part;
use serde_json::Value;

/// Expected parts of a reply.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReplyTextShape {
    /// The prompt ends within thoughts, so that the reply begins with them.
    pub(crate) thinking: bool,
    /// Thoughts are told from the answer.
    pub(crate) thoughts: bool,
    /// Maximum number of calls; 0 reads none.
    pub(crate) calls: usize,
    /// Calls have tags: a reply that begins as one without a tag is an answer in JSON.
    pub(crate) tagged: bool,
    /// Form of thoughts and calls.
    pub(crate) format: Arc<ReplyFormat>,
    /// Declarations of the tools, for the types of arguments.
    pub(crate) tools: Arc<[Value]>,
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
    /// Before a message of a channel.
    Header,
    /// Within a message of thoughts, or of the answer.
    Message(MessageKind),
}

/// Kind of a message whose text is given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageKind {
    Thoughts,
    Answer,
}

/// Reader of a reply.
pub(crate) struct ReplyText<'a> {
    decoder: Option<Detokenizer<'a>>,
    stops: &'a [String],
    shape: ReplyTextShape,
    stage: ReplyStage,
    /// Text that is not given out yet.
    held: String,
    /// Length of the held text in which no stop string begins.
    searched: usize,
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
        Self { decoder: Some(decoder), ..Self::without_decoder(stops, shape) }
    }

    fn without_decoder(stops: &'a [String], shape: ReplyTextShape) -> Self {
        let stage = Self::first_stage(&shape);
        Self { decoder: None, stops, shape, stage, held: String::new(), searched: 0, stop: None }
    }

    fn first_stage(shape: &ReplyTextShape) -> ReplyStage {
        match shape {
            ReplyTextShape { thoughts: false, calls: 0, .. } => ReplyStage::Text,
            ReplyTextShape { format, .. } if format.calls == CallFormat::Harmony => {
                ReplyStage::Header
            }
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
        let mut text = Self::without_decoder(stops, shape);
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
        // The beginning of a stop string is held back, so that it is found here however the text is cut. What was searched
        // before is not searched again: calls are held until the end.
        self.held.push_str(text);
        let from = self.searched.min(self.held.len());
        let new = &self.held[from..];
        let found =
            self.stops.iter().filter_map(|stop| Some((from + new.find(stop.as_str())?, stop)));
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
        self.searched = self.held.len();
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
            ReplyStage::Thoughts => self.advance_thoughts(end, parts),
            ReplyStage::Text if self.shape.calls > 0 => self.advance_text(end, parts),
            ReplyStage::Text => self.give(&[], end, ReplyPart::Content, parts),
            ReplyStage::Calls | ReplyStage::BareCall => {
                if end && !self.held.is_empty() {
                    self.read_calls(parts);
                }
                false
            }
            ReplyStage::Header => self.advance_header(end, parts),
            ReplyStage::Message(kind) => self.advance_message(kind, end, parts),
        }
    }

    /// Gives out text up to the first call.
    fn advance_text(&mut self, end: bool, parts: &mut Vec<ReplyPart>) -> bool {
        let openings = self.shape.format.calls.openings();
        let Some(at) = find_first(&self.held, openings) else {
            return self.give(openings, end, ReplyPart::Content, parts);
        };
        add_part(parts, ReplyPart::Content(self.held[..at].to_owned()));
        self.held.drain(..at);
        self.stage = ReplyStage::Calls;
        true
    }

    /// Gives out thoughts up to their end.
    fn advance_thoughts(&mut self, end: bool, parts: &mut Vec<ReplyPart>) -> bool {
        let format = Arc::clone(&self.shape.format);
        let close = format.thoughts.close.as_str();
        let Some(at) = self.held.find(close) else {
            return self.give(&[close], end, ReplyPart::Reasoning, parts);
        };
        let thoughts = self.held[..at].to_owned();
        self.held.drain(..at + close.len());
        add_part(parts, ReplyPart::Reasoning(thoughts));
        self.stage = ReplyStage::Answer;
        true
    }

    /// Reads the header of a message. Text without a header is content, and from a message to a tool on, all is held.
    fn advance_header(&mut self, end: bool, parts: &mut Vec<ReplyPart>) -> bool {
        if self.held.is_empty() || !(end || ChannelHeader::is_decided(&self.held)) {
            return false;
        }
        let (kind, read) = match ChannelHeader::read(&self.held) {
            Some(ChannelHeader { channel: Channel::Tool(_), .. }) if self.shape.calls > 0 => {
                self.stage = ReplyStage::Calls;
                return true;
            }
            Some(ChannelHeader { channel: Channel::Thoughts, len }) => (MessageKind::Thoughts, len),
            Some(ChannelHeader { len, .. }) => (MessageKind::Answer, len),
            None => {
                // A start of a message without the rest is text.
                let first = self.held.chars().next().map_or(0, char::len_utf8);
                add_part(parts, ReplyPart::Content(self.held.drain(..first).collect()));
                (MessageKind::Answer, 0)
            }
        };
        self.held.drain(..read);
        self.stage = ReplyStage::Message(kind);
        true
    }

    /// Gives out a message up to its end.
    fn advance_message(
        &mut self,
        kind: MessageKind,
        end: bool,
        parts: &mut Vec<ReplyPart>,
    ) -> bool {
        let part = match kind {
            MessageKind::Thoughts => ReplyPart::Reasoning,
            MessageKind::Answer => ReplyPart::Content,
        };
        let ends = ChannelHeader::BODY_ENDS;
        let Some(at) = find_first(&self.held, &ends) else {
            return self.give(&ends, end, part, parts);
        };
        add_part(parts, part(self.held[..at].to_owned()));
        self.held.drain(..at);
        // The first three belong to the message, the others begin the next one.
        let close = ends[..3].iter().find(|close| self.held.starts_with(**close));
        self.held.drain(..close.map_or(0, |close| close.len()));
        self.stage = ReplyStage::Header;
        true
    }

    /// Reads the held text, which has calls, at the end of the reply.
    fn read_calls(&mut self, parts: &mut Vec<ReplyPart>) {
        let (held, most) = (std::mem::take(&mut self.held), self.shape.calls);
        let format = self.shape.format.calls;
        match self.stage {
            _ if format == CallFormat::Harmony => read_channel_calls(&held, most, parts),
            _ if !format.is_json() => {
                let segments = tools::split_calls(&held, format, &self.shape.tools);
                read_segments(segments, most, parts);
            }
            ReplyStage::Calls => read_tagged_calls(&held, most, parts),
            _ => read_bare_calls(&held, most, parts),
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
        let format = &self.shape.format;
        let think = format.thoughts.open.as_str();
        if self.shape.thoughts && said.starts_with(think) {
            let at = self.held.len() - said.len() + think.len();
            self.held.drain(..at);
            self.stage = ReplyStage::Opened;
            return true;
        }
        let bare = self.shape.calls > 0 && !self.shape.tagged;
        let starts = format.calls.bare_openings();
        if bare && starts.iter().any(|start| said.starts_with(start)) {
            self.stage = ReplyStage::BareCall;
            return true;
        }
        let tags = starts.iter().copied().filter(|_| bare);
        let tags = tags.chain([think].into_iter().filter(|_| self.shape.thoughts));
        let undecided = tags.into_iter().any(|tag| tag.starts_with(said));
        if undecided && !end {
            return false;
        }
        self.stage = ReplyStage::Text;
        true
    }

    /// Gives out the held text but for what may become one of these tags.
    fn give(
        &mut self,
        tags: &[&str],
        end: bool,
        part: impl Fn(String) -> ReplyPart,
        parts: &mut Vec<ReplyPart>,
    ) -> bool {
        let overlaps = tags.iter().map(|tag| overlap(&self.held, tag));
        let kept = if end { 0 } else { overlaps.max().unwrap_or(0) };
        let given: String = self.held.drain(..self.held.len() - kept).collect();
        add_part(parts, part(given));
        false
    }
}

/// Returns the length of the longest end of `text` that is a beginning of `tag`.
fn overlap(text: &str, tag: &str) -> usize {
    let most = text.len().min(tag.len().saturating_sub(1));
    (1..=most).rev().find(|&n| tag.is_char_boundary(n) && text.ends_with(&tag[..n])).unwrap_or(0)
}

/// Returns the position of the first of some texts.
fn find_first(text: &str, wanted: &[&str]) -> Option<usize> {
    wanted.iter().filter_map(|wanted| text.find(wanted)).min()
}

#[cfg(test)]
mod tests;

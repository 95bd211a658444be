//! Events of a streamed message.

use serde::Serialize;
use tokio::sync::mpsc;

use super::answer::{
    ContentBlock, MessageAnswer, MessageEnd, MessageOrigin, MessageUsage, StopReason, signature,
};
use crate::openai::answer::TokenUsage;
use crate::openai::chat::{ChatChunkChoice, Delta, ToolCall};
use crate::openai::origin::AnswerOrigin;
use crate::openai::writer::{AnswerWriter, StreamWriter};
use crate::refusal::Refusal;
use crate::stream::Events;

/// An event.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum MessageEvent {
    MessageStart {
        message: Box<MessageAnswer>,
    },
    ContentBlockStart {
        index: usize,
        content_block: ContentBlock,
    },
    ContentBlockDelta {
        index: usize,
        delta: BlockDelta,
    },
    ContentBlockStop {
        index: usize,
    },
    MessageDelta {
        delta: MessageEnd,
        usage: MessageUsage,
        #[serde(skip_serializing_if = "Option::is_none")]
        maverl: Option<MessageOrigin>,
    },
    MessageStop,
}

/// Part of a block that an event adds.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type")]
pub(super) enum BlockDelta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    Input { partial_json: String },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
}

impl MessageEvent {
    /// Returns the name of the event, which is its type too.
    fn name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
        }
    }
}

/// A block whose end was not sent yet.
#[derive(Debug)]
enum OpenBlock {
    /// Thoughts so far, which the block ends with the signature of.
    Thinking(String),
    Text,
}

/// Events that the parts of a reply become.
#[derive(Debug)]
pub(super) struct MessageEvents {
    /// Number of blocks that were begun.
    begun: usize,
    open: Option<OpenBlock>,
    /// True once there is a text or a call.
    answered: bool,
    end: MessageEnd,
    token_ids: Option<Vec<u32>>,
    /// Reason of the end of a reply that is cut.
    length: StopReason,
}

impl MessageEvents {
    pub(super) fn new(length: StopReason) -> Self {
        let (begun, open, answered, end, token_ids) = Default::default();
        Self { begun, open, answered, end, token_ids, length }
    }

    /// Returns the events of a part.
    pub(super) fn of_part(&mut self, part: ChatChunkChoice) -> Vec<MessageEvent> {
        let mut events = Vec::new();
        let Delta { content, reasoning_content, tool_calls, .. } = part.delta;
        if let Some(text) = reasoning_content.filter(|text| !text.is_empty()) {
            self.add_thoughts(text, &mut events);
        }
        if let Some(text) = content.filter(|text| !text.is_empty()) {
            self.add_text(text, &mut events);
        }
        for call in &tool_calls {
            self.add_call(call, &mut events);
        }
        if let Some(ids) = part.token_ids {
            self.token_ids.get_or_insert_default().extend(ids);
        }
        if part.finish_reason.is_some() {
            let stop = part.stop_reason.as_ref().and_then(Option::as_ref);
            self.end = MessageEnd::of_choice(part.finish_reason, stop, self.length);
        }
        events
    }

    /// Returns the events after the last part.
    pub(super) fn finish(
        &mut self,
        usage: TokenUsage,
        origin: Option<AnswerOrigin>,
    ) -> Vec<MessageEvent> {
        let mut events = Vec::new();
        if !self.answered {
            self.begin(ContentBlock::Text { text: String::new() }, &mut events);
            self.open = Some(OpenBlock::Text);
        }
        self.close(&mut events);
        let told = origin.is_some() || self.token_ids.is_some();
        let (token_ids, prompt_token_ids) = (self.token_ids.take(), None);
        let maverl = told.then_some(MessageOrigin { origin, prompt_token_ids, token_ids });
        events.push(MessageEvent::MessageDelta {
            delta: std::mem::take(&mut self.end),
            usage: usage.into(),
            maverl,
        });
        events.push(MessageEvent::MessageStop);
        events
    }

    fn add_thoughts(&mut self, text: String, events: &mut Vec<MessageEvent>) {
        if !matches!(self.open, Some(OpenBlock::Thinking(_))) {
            let (thinking, signature) = Default::default();
            self.begin(ContentBlock::Thinking { thinking, signature }, events);
            self.open = Some(OpenBlock::Thinking(String::new()));
        }
        if let Some(OpenBlock::Thinking(thoughts)) = &mut self.open {
            thoughts.push_str(&text);
        }
        self.add(BlockDelta::Thinking { thinking: text }, events);
    }

    fn add_text(&mut self, text: String, events: &mut Vec<MessageEvent>) {
        if !matches!(self.open, Some(OpenBlock::Text)) {
            self.begin(ContentBlock::Text { text: String::new() }, events);
            self.open = Some(OpenBlock::Text);
            self.answered = true;
        }
        self.add(BlockDelta::Text { text }, events);
    }

    fn add_call(&mut self, call: &ToolCall, events: &mut Vec<MessageEvent>) {
        self.begin(ContentBlock::begun_call(call), events);
        self.answered = true;
        let partial_json = call.function.arguments.clone();
        self.add(BlockDelta::Input { partial_json }, events);
        events.push(MessageEvent::ContentBlockStop { index: self.begun - 1 });
    }

    /// Begins a block, after the end of the one before it.
    fn begin(&mut self, content_block: ContentBlock, events: &mut Vec<MessageEvent>) {
        self.close(events);
        events.push(MessageEvent::ContentBlockStart { index: self.begun, content_block });
        self.begun += 1;
    }

    /// Adds to the last block that was begun.
    fn add(&self, delta: BlockDelta, events: &mut Vec<MessageEvent>) {
        events.push(MessageEvent::ContentBlockDelta { index: self.begun - 1, delta });
    }

    /// Ends the open block.
    fn close(&mut self, events: &mut Vec<MessageEvent>) {
        let Some(open) = self.open.take() else { return };
        if let OpenBlock::Thinking(thoughts) = open {
            self.add(BlockDelta::Signature { signature: signature(&thoughts) }, events);
        }
        events.push(MessageEvent::ContentBlockStop { index: self.begun - 1 });
    }
}

/// Sender of a message in events.
pub(crate) struct EventWriter<'e, B> {
    /// Function that creates the message when its reply begins, until it is sent.
    begin: Option<B>,
    message: MessageEvents,
    events: &'e Events,
}

impl<'e, B: FnOnce() -> MessageAnswer> EventWriter<'e, B> {
    /// Creates a sender. `length` is the reason of the end of a reply that is cut.
    pub(crate) fn new(begin: B, length: StopReason, events: &'e Events) -> Self {
        Self { begin: Some(begin), message: MessageEvents::new(length), events }
    }

    /// Sends events, the first of them after the begin of the message. Returns false if the client is gone.
    async fn send(&mut self, events: Vec<MessageEvent>) -> bool {
        if !events.is_empty()
            && let Some(begin) = self.begin.take()
        {
            let start = MessageEvent::MessageStart { message: Box::new(begin()) };
            if !send_events(self.events, vec![start]).await {
                return false;
            }
        }
        send_events(self.events, events).await
    }
}

/// Sends events. Returns false if the client is gone.
async fn send_events(to: &Events, events: Vec<MessageEvent>) -> bool {
    for event in events {
        if !to.send_named(event.name(), &event).await {
            return false;
        }
    }
    true
}

impl<B> AnswerWriter<ChatChunkChoice> for EventWriter<'_, B>
where
    B: FnOnce() -> MessageAnswer + Send,
{
    async fn next<T>(&self, news: &mut mpsc::Receiver<T>) -> Option<T> {
        self.events.next(news).await
    }

    async fn write(&mut self, part: ChatChunkChoice) -> bool {
        let events = self.message.of_part(part);
        self.send(events).await
    }
}

impl<B> StreamWriter<ChatChunkChoice> for EventWriter<'_, B>
where
    B: FnOnce() -> MessageAnswer + Send,
{
    async fn finish(mut self, usage: TokenUsage, maverl: Option<AnswerOrigin>) {
        self.events.end_stream();
        let last = self.message.finish(usage, maverl);
        self.send(last).await;
    }

    async fn fail(self, refusal: &Refusal) {
        fail_stream(self.events, refusal).await;
    }
}

/// Ends a stream with an error, which clients raise.
pub(crate) async fn fail_stream(events: &Events, refusal: &Refusal) {
    events.end_stream();
    events.send_named("error", &refusal.anthropic_answer()).await;
}

//! Writers of chat completions: one writes a whole answer and one the chunks of a stream, from the same parts.

use tokio::sync::mpsc;

use super::chat::{
    ChatChoice, ChatChunk, ChatCompletion, ChatObject, ChoiceEnd, ChunkChoice, Delta, PartTokens,
    Usage,
};
use super::origin::Origin;
use crate::stream::Events;

/// Identity of an answer, the same in all its chunks.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
    pub(crate) system_fingerprint: Option<String>,
}

/// Fields beside the choices: in the first chunk of a stream, and at the end of a whole answer.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    pub(crate) maverl: Option<Origin>,
    pub(crate) prompt_token_ids: Option<Vec<u32>>,
}

/// Receiver of the parts of an answer. Its methods return false if the client is gone.
pub(crate) trait ChatWriter {
    /// Waits for the next news of the choices.
    async fn next<T>(&self, news: &mut mpsc::Receiver<T>) -> Option<T>;

    /// Begins the next choice.
    async fn begin(&mut self, index: usize) -> bool;

    /// Adds a part to the reply of a choice.
    async fn add(&mut self, index: usize, delta: Delta, tokens: PartTokens) -> bool;

    /// Ends a choice.
    async fn end(&mut self, index: usize, end: ChoiceEnd) -> bool;
}

/// Choices of an answer that is sent at its end.
#[derive(Debug, Default)]
pub(crate) struct WholeWriter(Vec<ChatChoice>);

impl ChatWriter for WholeWriter {
    async fn next<T>(&self, news: &mut mpsc::Receiver<T>) -> Option<T> {
        news.recv().await
    }

    async fn begin(&mut self, index: usize) -> bool {
        self.0.push(ChatChoice::new(index));
        true
    }

    async fn add(&mut self, index: usize, delta: Delta, tokens: PartTokens) -> bool {
        self.0[index].add(delta);
        self.0[index].add_tokens(tokens);
        true
    }

    async fn end(&mut self, index: usize, end: ChoiceEnd) -> bool {
        self.0[index].end(end);
        true
    }
}

impl WholeWriter {
    /// Returns the answer.
    pub(crate) fn finish(self, header: Header, usage: Usage, extra: Extra) -> ChatCompletion {
        let Header { id, created, model, system_fingerprint } = header;
        let Extra { maverl, prompt_token_ids } = extra;
        ChatCompletion {
            id,
            object: ChatObject::Completion,
            created,
            model,
            choices: self.0,
            system_fingerprint,
            usage,
            maverl,
            prompt_token_ids,
        }
    }
}

/// Chunks that have the field `usage`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UsageChunks {
    None,
    Last,
    /// It is `null` before the last one.
    All,
}

/// Sender of an answer in chunks.
pub(crate) struct ChunkWriter<'e> {
    pub(crate) header: Header,
    /// Fields of the first chunk.
    pub(crate) extra: Extra,
    pub(crate) usage: UsageChunks,
    pub(crate) events: &'e Events,
}

impl ChatWriter for ChunkWriter<'_> {
    /// Waits for the next news of the choices, and tells the client that the stream goes on.
    async fn next<T>(&self, news: &mut mpsc::Receiver<T>) -> Option<T> {
        self.events.next(news).await
    }

    async fn begin(&mut self, index: usize) -> bool {
        let extra = std::mem::take(&mut self.extra);
        let choice = ChunkChoice::new(index, Delta::first(), PartTokens::default());
        self.send(vec![choice], extra, None).await
    }

    async fn add(&mut self, index: usize, delta: Delta, tokens: PartTokens) -> bool {
        let choice = ChunkChoice::new(index, delta, tokens);
        self.send(vec![choice], Extra::default(), None).await
    }

    async fn end(&mut self, index: usize, end: ChoiceEnd) -> bool {
        let tokens = PartTokens { logprobs: None, ids: end.token_ids };
        let choice = ChunkChoice {
            finish_reason: Some(end.reason),
            stop_reason: end.stop,
            ..ChunkChoice::new(index, Delta::default(), tokens)
        };
        self.send(vec![choice], Extra::default(), None).await
    }
}

impl ChunkWriter<'_> {
    /// Ends the stream: with a chunk of `usage` if the client asked for it, and of `maverl` if no other chunk had it.
    pub(crate) async fn finish(self, usage: Usage, maverl: Option<Origin>) {
        let asked = self.usage != UsageChunks::None;
        if asked || maverl.is_some() {
            let extra = Extra { maverl, prompt_token_ids: None };
            self.send(Vec::new(), extra, asked.then_some(usage)).await;
        }
        self.events.done().await;
    }

    async fn send(&self, choices: Vec<ChunkChoice>, extra: Extra, usage: Option<Usage>) -> bool {
        let Header { id, created, model, system_fingerprint } = &self.header;
        let shown = usage.is_some() || self.usage == UsageChunks::All;
        let chunk = ChatChunk {
            id,
            object: ChatObject::Chunk,
            created: *created,
            model,
            choices,
            system_fingerprint: system_fingerprint.as_deref(),
            usage: shown.then_some(usage),
            maverl: extra.maverl,
            prompt_token_ids: extra.prompt_token_ids,
        };
        self.events.send(&chunk).await
    }
}

//! Writers of answers: one writes a whole answer and one the chunks of a stream, from the same parts.

use std::marker::PhantomData;

use tokio::sync::mpsc;

use super::answer::{ChoicePart, ChoicesAnswer, ChunkChoice, Extra, Header, TokenUsage};
use super::origin::AnswerOrigin;
use crate::refusal::Refusal;
use crate::stream::Events;

/// Receiver of the parts of an answer.
pub(crate) trait AnswerWriter<P> {
    /// Waits for the next news of the choices.
    async fn next<T>(&self, news: &mut mpsc::Receiver<T>) -> Option<T>;

    /// Adds a part to its choice. Returns false if the client is gone.
    async fn write(&mut self, part: P) -> bool;
}

/// Sender of an answer in parts, with an end.
pub(crate) trait StreamWriter<P>: AnswerWriter<P> {
    /// Ends the stream. `maverl` is the field of that name, if no earlier part had it.
    async fn finish(self, usage: TokenUsage, maverl: Option<AnswerOrigin>);

    /// Ends the stream with an error, which clients raise.
    async fn fail(self, refusal: &Refusal);
}

/// Choices of an answer that is sent at its end.
#[derive(Debug)]
pub(crate) struct WholeWriter<P: ChoicePart>(Vec<P::Choice>);

impl<P: ChoicePart> Default for WholeWriter<P> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<P: ChoicePart> AnswerWriter<P> for WholeWriter<P> {
    async fn next<T>(&self, news: &mut mpsc::Receiver<T>) -> Option<T> {
        news.recv().await
    }

    async fn write(&mut self, part: P) -> bool {
        let index = part.index();
        self.0.extend((self.0.len()..=index).map(P::choice));
        part.add_to(&mut self.0[index]);
        true
    }
}

impl<P: ChoicePart> WholeWriter<P> {
    /// Returns the choices.
    pub(crate) fn choices(self) -> Vec<P::Choice> {
        self.0
    }
}

impl<P: ChunkChoice> WholeWriter<P> {
    /// Returns the answer.
    pub(crate) fn finish(
        self,
        header: Header,
        usage: TokenUsage,
        extra: Extra,
    ) -> ChoicesAnswer<P::Choice> {
        let Header { id, created, model, system_fingerprint } = header;
        let Extra { maverl, prompt_token_ids } = extra;
        ChoicesAnswer {
            id,
            object: P::OBJECT,
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
pub(crate) struct ChunkWriter<'e, P> {
    pub(crate) header: Header,
    pub(crate) usage: UsageChunks,
    /// Fields of the first chunk, until it is sent.
    first: Option<Extra>,
    /// Fields of all later chunks.
    later: Extra,
    events: &'e Events,
    parts: PhantomData<fn(P)>,
}

impl<'e, P: ChunkChoice> ChunkWriter<'e, P> {
    /// Creates a sender whose first chunk has the fields of `first`.
    pub(crate) fn new(
        header: Header,
        usage: UsageChunks,
        first: Extra,
        events: &'e Events,
    ) -> Self {
        let (later, parts) = Default::default();
        Self { header, usage, first: Some(first), later, events, parts }
    }

    /// Adds fields to all chunks but the first.
    #[must_use]
    pub(crate) fn with_later(self, later: Extra) -> Self {
        Self { later, ..self }
    }

    async fn send(&self, choices: Vec<P>, extra: Extra, usage: Option<TokenUsage>) -> bool {
        let shown = usage.is_some() || self.usage == UsageChunks::All;
        let chunk = P::chunk(&self.header, choices, shown.then_some(usage), extra);
        self.events.send(&chunk).await
    }
}

impl<P: ChunkChoice> AnswerWriter<P> for ChunkWriter<'_, P> {
    /// Waits for the next news of the choices, and tells the client that the stream goes on.
    async fn next<T>(&self, news: &mut mpsc::Receiver<T>) -> Option<T> {
        self.events.next(news).await
    }

    async fn write(&mut self, part: P) -> bool {
        let extra = self.first.take().unwrap_or_else(|| self.later.clone());
        self.send(vec![part], extra, None).await
    }
}

impl<P: ChunkChoice> StreamWriter<P> for ChunkWriter<'_, P> {
    /// Ends the stream: with a chunk of `usage` if the client asked for it, and of `maverl` if no other chunk had it.
    async fn finish(mut self, usage: TokenUsage, maverl: Option<AnswerOrigin>) {
        let asked = self.usage != UsageChunks::None;
        if asked || maverl.is_some() {
            self.later.maverl = maverl.or(self.later.maverl);
            self.send(Vec::new(), self.later.clone(), asked.then_some(usage)).await;
        }
        self.events.finish_stream().await;
    }

    async fn fail(self, refusal: &Refusal) {
        self.events.fail(refusal).await;
    }
}

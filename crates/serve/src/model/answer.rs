//! Answers of the routes that generate: whole, or in chunks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::http::StatusCode;
use axum::response::Response;
use tokio::sync::mpsc;

use super::catalog::Entry;
use super::choice::{ChoiceEvent, ReplyBatch, ReplyEnd};
use super::server::ModelServer;
use crate::openai::answer::{
    CachedTokens, ChoicePart, ChoicesAnswer, ChunkChoice, Extra, FinishReason, Header, TokenUsage,
};
use crate::openai::origin::{AnswerOrigin, Seed};
use crate::openai::writer::{
    AnswerWriter, ChunkWriter, StreamWriter as _, UsageChunks, WholeWriter,
};
use crate::openai::{Choices, Streaming, new_id, now};
use crate::queue::Admitted;
use crate::refusal::{Refusal, json_response};
use crate::stream::events;
use maverl::runtime::Step;
use maverl::trajectory::Finish;

/// Form in which a route writes the choices of a batch.
pub(super) trait ReplyForm: Send + Sync + 'static {
    /// Part of a choice.
    type Part: ChoicePart + Send;
    /// What is known of a choice between its parts.
    type State<'b>: Send;

    /// Begins a choice. Returns the part before its reply, if there is one.
    fn begin<'b>(
        &'b self,
        batch: &'b ReplyBatch,
        index: usize,
    ) -> (Self::State<'b>, Option<Self::Part>);

    /// Returns the parts of a choice that news become.
    fn read(
        &self,
        batch: &ReplyBatch,
        index: usize,
        news: ChoiceEvent,
        state: &mut Self::State<'_>,
    ) -> Vec<Self::Part>;
}

/// A form with whole answers and chunks.
pub(super) trait AnswerForm: ReplyForm<Part: ChunkChoice> {
    /// First part of the id of an answer.
    const PREFIX: &'static str;

    /// Returns the fields beside the choices.
    fn extra(&self, batch: &ReplyBatch, origin: AnswerOrigin) -> Extra;
}

/// A request that was read: its choices, and how they are written and sent.
pub(super) struct Generation<F> {
    pub(super) batch: ReplyBatch,
    pub(super) choices: Choices,
    pub(super) streaming: Streaming,
    pub(super) form: F,
}

impl<F: AnswerForm> Generation<F> {
    /// Answers at the end or in chunks, as the client asked.
    pub(super) async fn answer(
        self,
        server: &Arc<ModelServer>,
        admitted: Admitted,
    ) -> Result<Response, Refusal> {
        if self.streaming.stream {
            return Ok(self.stream(server, admitted));
        }
        let answer = self.whole_answer(server, &admitted).await?;
        Ok(json_response(StatusCode::OK, &answer))
    }

    /// Returns the whole answer, at its end.
    pub(super) async fn whole_answer(
        &self,
        server: &ModelServer,
        admitted: &Admitted,
    ) -> Result<ChoicesAnswer<<F::Part as ChoicePart>::Choice>, Refusal> {
        let mut writer = WholeWriter::default();
        let tokens = self.write(server, admitted, &mut writer).await?.unwrap_or_default();
        let header = self.batch.entry.header(F::PREFIX);
        Ok(writer.finish(header, usage(&self.batch, tokens), self.extra()))
    }

    /// Answers in chunks.
    fn stream(self, server: &Arc<ModelServer>, admitted: Admitted) -> Response {
        let of = Arc::clone(server);
        events(&server.metrics, move |events| async move {
            let asked = self.streaming.include_usage;
            let usage_chunks = if asked { UsageChunks::All } else { UsageChunks::None };
            let header = self.batch.entry.header(F::PREFIX);
            let mut writer = ChunkWriter::new(header, usage_chunks, self.extra(), &events);
            match self.write(&of, &admitted, &mut writer).await {
                Err(refusal) => writer.fail(&refusal).await,
                Ok(None) => {}
                Ok(Some(tokens)) => writer.finish(usage(&self.batch, tokens), None).await,
            }
        })
    }

    fn extra(&self) -> Extra {
        self.form.extra(&self.batch, self.batch.entry.origin(self.choices.seed))
    }
}

impl<F: ReplyForm> Generation<F> {
    /// Writes the choices while they are generated. Returns the number of sampled tokens, or `None` if the client left.
    pub(super) async fn write(
        &self,
        server: &ModelServer,
        admitted: &Admitted,
        writer: &mut impl AnswerWriter<F::Part>,
    ) -> Result<Option<usize>, Refusal> {
        let (news, mut received) = mpsc::channel::<(usize, ChoiceEvent)>(64);
        let Self { batch, form, .. } = self;
        let written = async {
            let (mut tokens, mut states) = (0, Vec::new());
            for index in 0..batch.jobs.len() {
                let (state, first) = form.begin(batch, index);
                states.push(state);
                if let Some(first) = first
                    && !writer.write(first).await
                {
                    return None;
                }
            }
            while let Some((index, news)) = writer.next(&mut received).await {
                if let ChoiceEvent::End(end) = &news {
                    tokens += end.tokens;
                }
                for part in form.read(batch, index, news, &mut states[index]) {
                    if !writer.write(part).await {
                        return None;
                    }
                }
            }
            Some(tokens)
        };
        let (done, tokens) = tokio::join!(batch.run(server, admitted, news), written);
        done.map(|()| tokens)
    }
}

impl Entry {
    /// Returns the identity of an answer, whose id begins with `prefix`.
    pub(super) fn header(&self, prefix: &str) -> Header {
        Header {
            id: new_id(prefix),
            created: now(),
            model: self.name.clone(),
            system_fingerprint: Some(self.system_fingerprint()),
        }
    }

    /// Returns what the same request needs to get the same answer.
    pub(super) fn origin(&self, seed: u64) -> AnswerOrigin {
        AnswerOrigin::new(Seed::Number(seed), self.version)
    }
}

/// Returns `usage`. A prompt that several choices share counts once.
pub(super) fn usage(batch: &ReplyBatch, completion: usize) -> TokenUsage {
    let mut prompt = 0;
    for (i, job) in batch.jobs.iter().enumerate() {
        let shared = i > 0 && Arc::ptr_eq(&batch.jobs[i - 1].prompt, &job.prompt);
        prompt += if shared { 0 } else { job.prompt.len() };
    }
    let cached_tokens = batch.cached.load(Ordering::Relaxed).min(prompt);
    let prompt_tokens_details = Some(CachedTokens { cached_tokens });
    TokenUsage { prompt_tokens_details, ..TokenUsage::new(prompt, completion) }
}

/// Returns the reason why a choice ended.
pub(super) fn finish_reason(end: &ReplyEnd) -> FinishReason {
    match end.finish {
        Finish::Length => FinishReason::Length,
        Finish::Stop if end.calls => FinishReason::ToolCalls,
        Finish::Stop => FinishReason::Stop,
    }
}

/// Returns the token ids of steps.
pub(super) fn ids(steps: &[Step]) -> Vec<u32> {
    steps.iter().map(|step| step.id).collect()
}

//! Answers of chat and text completions, whole and in chunks.

use std::sync::atomic::Ordering;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::choice::{Batch, End, News};
use super::{Entry, ModelServer};
use crate::openai::{Part, new_id, now};
use crate::queue::Admitted;
use crate::refusal::Refusal;
use crate::stream::Events;
use maverl::runtime::Step;
use maverl::trajectory::Finish;

/// A whole choice.
#[derive(Debug, Default)]
pub(super) struct Whole {
    pub(super) parts: Vec<Part>,
    pub(super) steps: Vec<Step>,
    pub(super) end: Option<End>,
}

impl Whole {
    /// Returns the joined content.
    pub(super) fn content(&self) -> String {
        let text = |part: &Part| match part {
            Part::Content(text) => Some(text.clone()),
            _ => None,
        };
        self.parts.iter().filter_map(text).collect()
    }

    /// Returns the joined thoughts, if there are any.
    pub(super) fn reasoning(&self) -> Option<String> {
        let text = |part: &Part| match part {
            Part::Reasoning(text) => Some(text.clone()),
            _ => None,
        };
        let texts: Vec<String> = self.parts.iter().filter_map(text).collect();
        (!texts.is_empty()).then(|| texts.concat())
    }
}

/// Generates all choices of a batch to their ends.
pub(super) async fn whole(
    server: &ModelServer,
    batch: &Batch,
    admitted: &Admitted,
) -> Result<Vec<Whole>, Refusal> {
    let (news, mut received) = mpsc::channel::<(usize, News)>(64);
    let mut choices: Vec<Whole> = batch.jobs.iter().map(|_| Whole::default()).collect();
    let collect = async {
        while let Some((index, news)) = received.recv().await {
            let whole = &mut choices[index];
            match news {
                News::More { parts, steps } => {
                    whole.parts.extend(parts);
                    whole.steps.extend(steps);
                }
                News::End(end) => whole.end = Some(end),
            }
        }
    };
    let (done, ()) = tokio::join!(batch.run(server, admitted, news), collect);
    done.map(|()| choices)
}

/// Identity of an answer, the same in all its chunks.
pub(super) struct Header {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    fingerprint: String,
    pub(super) seed: u64,
    version: u64,
}

impl Header {
    pub(super) fn new(prefix: &str, object: &'static str, entry: &Entry, seed: u64) -> Self {
        Self {
            id: new_id(prefix),
            object,
            created: now(),
            model: entry.name.clone(),
            fingerprint: entry.system_fingerprint(),
            seed,
            version: entry.version,
        }
    }

    /// Returns an answer with these choices.
    pub(super) fn answer(&self, choices: Vec<Value>) -> Map<String, Value> {
        let mut answer = Map::new();
        answer.insert("id".to_owned(), self.id.as_str().into());
        answer.insert("object".to_owned(), self.object.into());
        answer.insert("created".to_owned(), self.created.into());
        answer.insert("model".to_owned(), self.model.as_str().into());
        answer.insert("choices".to_owned(), choices.into());
        answer.insert("system_fingerprint".to_owned(), self.fingerprint.as_str().into());
        answer
    }

    /// Ends an answer in chunks, with its usage if that is wanted.
    pub(super) async fn end(&self, usage: Option<Value>, events: &Events) {
        if let Some(usage) = usage {
            let mut chunk = self.answer(Vec::new());
            chunk.insert("usage".to_owned(), usage);
            events.send(&chunk.into()).await;
        }
        events.done().await;
    }

    /// Returns the field `maverl`: what the same request needs to get the same answer.
    pub(super) fn repeatable(&self) -> Value {
        json!({"seed": self.seed, "version": self.version})
    }
}

/// Returns `usage`. A prompt that several choices share counts once.
pub(super) fn usage(batch: &Batch, completion: usize) -> Value {
    let mut prompt = 0;
    for (i, job) in batch.jobs.iter().enumerate() {
        let shared = i > 0 && std::sync::Arc::ptr_eq(&batch.jobs[i - 1].prompt, &job.prompt);
        prompt += if shared { 0 } else { job.prompt.len() };
    }
    let cached = batch.cached.load(Ordering::Relaxed).min(prompt);
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    })
}

/// Returns the reason why a choice ended.
pub(super) fn finish_reason(end: &End) -> &'static str {
    match end.finish {
        Finish::Length => "length",
        Finish::Stop if end.calls => "tool_calls",
        Finish::Stop => "stop",
    }
}

/// Returns token ids as JSON.
pub(super) fn ids(steps: &[Step]) -> Value {
    steps.iter().map(|step| step.id).collect::<Vec<u32>>().into()
}

//! Parts of an answer that all routes have.

use std::sync::atomic::Ordering;

use tokio::sync::mpsc;

use super::catalog::Entry;
use super::choice::{Batch, End, News};
use super::server::ModelServer;
use crate::openai::chat::{FinishReason, PromptTokens, Usage};
use crate::openai::origin::{Origin, Seed};
use crate::openai::writer::Header;
use crate::openai::{Part, new_id, now};
use crate::queue::Admitted;
use crate::refusal::Refusal;
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
    pub(super) fn origin(&self, seed: u64) -> Origin {
        Origin::new(Seed::Number(seed), self.version)
    }
}

/// Returns `usage`. A prompt that several choices share counts once.
pub(super) fn usage(batch: &Batch, completion: usize) -> Usage {
    let mut prompt = 0;
    for (i, job) in batch.jobs.iter().enumerate() {
        let shared = i > 0 && std::sync::Arc::ptr_eq(&batch.jobs[i - 1].prompt, &job.prompt);
        prompt += if shared { 0 } else { job.prompt.len() };
    }
    let cached_tokens = batch.cached.load(Ordering::Relaxed).min(prompt);
    let prompt_tokens_details = Some(PromptTokens { cached_tokens });
    Usage { prompt_tokens_details, ..Usage::new(prompt, completion) }
}

/// Returns the reason why a choice ended.
pub(super) fn finish_reason(end: &End) -> FinishReason {
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

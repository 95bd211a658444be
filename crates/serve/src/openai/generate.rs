//! Answers of token ids: `POST /inference/v1/generate`.

use serde::Serialize;

use super::answer::{ChoicePart, FinishReason};
use super::origin::AnswerOrigin;
use super::tokens::TokenLogprob;

/// A whole answer.
#[derive(Debug, Serialize)]
pub(crate) struct GenerateAnswer {
    pub(crate) request_id: String,
    pub(crate) choices: Vec<GenerateChoice>,
    pub(crate) prompt_logprobs: (),
    pub(crate) kv_transfer_params: (),
    pub(crate) maverl: AnswerOrigin,
}

/// A choice of an answer, or a part of it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct GenerateChoice {
    pub(crate) index: usize,
    pub(crate) logprobs: Option<GenerateLogprobs>,
    pub(crate) finish_reason: Option<FinishReason>,
    pub(crate) token_ids: Vec<u32>,
}

/// Log-probs of the tokens of a reply.
#[derive(Debug, Serialize)]
pub(crate) struct GenerateLogprobs {
    pub(crate) content: Vec<TokenLogprob>,
}

impl ChoicePart for GenerateChoice {
    type Choice = Self;

    fn index(&self) -> usize {
        self.index
    }

    fn choice(index: usize) -> Self {
        Self { index, ..Self::default() }
    }

    fn add_to(self, choice: &mut Self) {
        choice.token_ids.extend(self.token_ids);
        choice.finish_reason = self.finish_reason.or(choice.finish_reason);
        match (&mut choice.logprobs, self.logprobs) {
            (Some(all), Some(more)) => all.content.extend(more.content),
            (all, more) => *all = more,
        }
    }
}

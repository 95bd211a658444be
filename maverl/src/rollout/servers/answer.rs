//! Validation of a server's answer, whatever its protocol.

use serde_json::Value;

use crate::files::HfConfig;
use crate::rollout::servers::request::{AnswerProblem, Asked};
use crate::rollout::servers::routes::SentRoutes;
use crate::runtime::{Completion, Finish};
use crate::text::Tokenizer;

/// Largest log-prob above 0 that is rounding.
const ROUNDING: f64 = 1e-3;

/// Parts of an answer that every protocol has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ServerAnswer {
    pub(super) ids: Vec<u32>,
    pub(super) logprobs: Vec<f32>,
    /// Reason of its end, as the server named it.
    pub(super) finish: String,
    /// Experts of the tokens, if they were asked for.
    pub(super) routes: Option<SentRoutes>,
}

impl ServerAnswer {
    /// Creates an answer of ids and log-probs as the server sent them.
    pub(super) fn new(
        ids: &[Value],
        logprobs: &[Value],
        finish: &str,
    ) -> Result<Self, AnswerProblem> {
        let n = ids.len();
        if n == 0 {
            return Err(AnswerProblem::Wrong("gave no token".to_owned()));
        }
        if logprobs.len() != n {
            let found = logprobs.len();
            return Err(AnswerProblem::Wrong(format!("gave {found} log-probs for {n} tokens")));
        }
        let (finish, routes) = (finish.to_owned(), None);
        let mut answer = Self { ids: Vec::new(), logprobs: Vec::new(), finish, routes };
        for (number, id) in (1..).zip(ids) {
            answer.ids.push(token_id(id).ok_or_else(|| {
                AnswerProblem::Wrong(format!("gave {id} as token {number} of {n}"))
            })?);
        }
        for (number, logprob) in (1..).zip(logprobs) {
            answer.logprobs.push(token_logprob(logprob).ok_or_else(|| {
                AnswerProblem::Wrong(format!(
                    "gave the log-prob {logprob} for token {number} of {n}; a log-prob is a number of at most 0"
                ))
            })?);
        }
        Ok(answer)
    }

    /// Returns the completion, if the answer is one of the request to a model.
    pub(super) fn completion(
        self,
        asked: &Asked<'_>,
        tokenizer: &Tokenizer,
        shape: &HfConfig,
    ) -> Result<Completion, AnswerProblem> {
        let finish = self.valid_finish(asked, tokenizer, shape.vocab_size);
        let finish = finish.map_err(AnswerProblem::Wrong)?;
        let tokens = asked.prompt.len() + self.ids.len() - 1;
        let routes = self.routes.map(|routes| routes.routes(shape, tokens)).transpose()?;
        let done = Completion::new(self.ids, self.logprobs, asked.weights.version, finish);
        Ok(done.with_routes(routes))
    }

    /// Returns the reason of the end, or that why the answer is none of the request.
    fn valid_finish(
        &self,
        asked: &Asked<'_>,
        tokenizer: &Tokenizer,
        vocabulary: usize,
    ) -> Result<Finish, String> {
        let (n, most) = (self.ids.len(), asked.max_tokens);
        if n > most {
            return Err(format!("gave {n} tokens, and at most {most} were asked for"));
        }
        if let Some(id) = self.ids.iter().find(|id| **id as usize >= vocabulary) {
            let last = vocabulary.saturating_sub(1);
            return Err(format!("gave the token id {id}, and the model has ids from 0 to {last}"));
        }
        let last = self.ids[n - 1];
        if let Some(at) = self.ids[..n - 1].iter().position(|id| asked.stop_ids.contains(id)) {
            let id = self.ids[at];
            return Err(format!("went on after token {} of {n}, the stop id {id}", at + 1));
        }
        match self.finish.as_str() {
            "stop" if asked.stop_ids.contains(&last) || self.has_stopped(asked, tokenizer) => {
                Ok(Finish::Stop)
            }
            "stop" => {
                let text = tokenizer.decode_raw(&[last]);
                Err(format!(
                    "stopped after the token id {last} ({text:?}), which ends no reply of this model: its \
                     `generation_config.json` is another one"
                ))
            }
            "length" if n == most => Ok(Finish::Length),
            "length" => Err(format!(
                "ended for its length after {n} tokens, and {most} were asked for: its context is shorter"
            )),
            other => Err(format!("ended for the reason {other:?}")),
        }
    }

    /// Returns true if the text has a stop string.
    fn has_stopped(&self, asked: &Asked<'_>, tokenizer: &Tokenizer) -> bool {
        let stop = &asked.sampling.stop;
        !stop.is_empty() && {
            let text = tokenizer.decode(&self.ids);
            stop.iter().any(|stop| text.contains(stop.as_str()))
        }
    }
}

fn token_id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

fn token_logprob(value: &Value) -> Option<f32> {
    let logprob = value.as_f64().filter(|value| *value <= ROUNDING && value.is_finite())?;
    Some(logprob.min(0.0) as f32)
}

/// Returns a part of an answer, or the problem that it is missing.
pub(super) fn part<'v>(answer: &'v Value, pointer: &str) -> Result<&'v Value, AnswerProblem> {
    let found = answer.pointer(pointer).filter(|part| !part.is_null());
    found.ok_or_else(|| {
        let name = pointer.trim_start_matches('/').replace('/', ".");
        let start = crate::client::start(&answer.to_string());
        AnswerProblem::Wrong(format!("answered without `{name}`: {start}"))
    })
}

/// Returns a list of an answer, or the problem that it is none.
pub(super) fn list<'v>(answer: &'v Value, pointer: &str) -> Result<&'v [Value], AnswerProblem> {
    let found = part(answer, pointer)?;
    let items = found.as_array().map(Vec::as_slice);
    items.ok_or_else(|| {
        let name = pointer.trim_start_matches('/').replace('/', ".");
        AnswerProblem::Wrong(format!("answered with `{name}` = {found}, no list"))
    })
}

/// Returns an error if a count of prompt tokens is not that of the prompt.
pub(super) fn same_prompt(found: &Value, asked: &Asked<'_>) -> Result<(), AnswerProblem> {
    let sent = asked.prompt.len();
    match found.as_u64() {
        Some(found) if found != sent as u64 => Err(AnswerProblem::Wrong(format!(
            "read a prompt of {found} tokens, and {sent} were sent"
        ))),
        _ => Ok(()),
    }
}

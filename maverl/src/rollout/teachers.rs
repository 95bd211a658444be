//! Teachers behind endpoints: servers that return the log-probabilities of the token ids of a prompt.
//!
//! A request is OpenAI's `/v1/completions` with `echo` and `logprobs`, as vLLM and `maverl serve model` answer it. Turns are scored
//! when their episode has ended, while others are played, and the log-probs are recorded with the turn: a resume or a replay
//! does not ask again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::IntoMap;
use crate::client::Client;
use crate::config::{EndpointConfig, OnRewardError};
use crate::plan::{Plan, TeacherSource, teacher_by_source};
use crate::rollout::endpoint::endpoint_client;
use crate::rollout::error::RolloutError;
use crate::rollout::fault::timeout_fault;
use crate::text::Tokenizer;
use crate::trajectory::{Episode, Fault, FaultKind, Outcome, Seat, TeacherScore, Turn};

/// Largest difference between two scores of one token in the probe at the start.
const PROBE_DIFFERENCE: f32 = 1e-3;

/// Teachers behind endpoints, by seat and source of tasks.
pub(crate) struct EndpointTeachers {
    /// Teachers of each seat, by the source of the task.
    seats: BTreeMap<Seat, BTreeMap<String, Arc<EndpointTeacher>>>,
    timeout: Duration,
}

/// A server that scores given tokens.
struct EndpointTeacher {
    /// Name of the teacher.
    name: String,
    /// Name of the endpoint.
    endpoint: String,
    client: Arc<Client>,
    model: String,
    places: Semaphore,
    on_error: OnRewardError,
}

impl EndpointTeachers {
    /// Connects the teachers of a plan that are behind endpoints, and probes each with two texts; `None` without any. Blocks the
    /// thread.
    ///
    /// # Errors
    ///
    /// If a server cannot be reached, or does not return equal log-probs of equal texts.
    pub(crate) fn start(plan: &Plan, tokenizer: &Tokenizer) -> Result<Option<Self>, RolloutError> {
        let mut teachers = BTreeMap::new();
        for (index, teacher) in plan.teachers.iter().enumerate() {
            let TeacherSource::Endpoint { name, endpoint, on_error } = &teacher.source else {
                continue;
            };
            let failed = |problem| RolloutError::Endpoint { name: name.clone(), problem };
            let client = endpoint_client(endpoint, "completions").map_err(failed)?;
            let made = EndpointTeacher::new(
                (teacher.name.as_str(), name.as_str()),
                endpoint,
                client,
                *on_error,
            );
            made.probe(tokenizer).map_err(failed)?;
            teachers.insert(index, Arc::new(made));
        }
        let seats = plan.seats.iter().filter_map(|seat| {
            let by_source = seat.teachers.as_ref()?.by_source.iter();
            let found = by_source.filter_map(|(source, index)| {
                Some((source.clone(), Arc::clone(teachers.get(index)?)))
            });
            Some((seat.seat.clone(), found.into_map())).filter(|(_, found)| !found.is_empty())
        });
        let timeout = Duration::try_from_secs_f64(plan.config.rollout.timeout_s);
        let all = Self { seats: seats.into_map(), timeout: timeout.unwrap_or(Duration::MAX) };
        Ok(Some(all).filter(|all| !all.seats.is_empty()))
    }

    /// Scores the turns of an episode, and records the log-probs with them. An episode whose turn cannot be scored ends unscored,
    /// or the turn has no teacher, as `on_error` says.
    pub(crate) async fn score_turns(&self, episode: &mut Episode) {
        if episode.score().is_none() {
            return;
        }
        let source = episode.task.source.clone();
        let asked = episode.turns.iter().map(|turn| self.score_turn(&source, turn));
        let scored = tokio::time::timeout(self.timeout, try_join_all(asked)).await;
        match scored.unwrap_or_else(|_elapsed| Err(timeout_fault(self.timeout))) {
            Ok(scores) => {
                for (turn, score) in episode.turns.iter_mut().zip(scores) {
                    turn.teacher = score;
                }
            }
            Err(fault) => {
                episode.rewards.clear();
                episode.outcome = Outcome::Unscored(fault);
            }
        }
    }

    /// Returns the score of a turn; `None` if it has no teacher behind an endpoint, or is to have none after a failure.
    async fn score_turn(&self, source: &str, turn: &Turn) -> Result<Option<TeacherScore>, Fault> {
        let Some(teacher) = self.teacher_of(&turn.seat, source) else { return Ok(None) };
        let Some(tokens) = turn.tokens.as_ref().filter(|_| !turn.masked) else { return Ok(None) };
        match teacher.score(&tokens.prompt, &tokens.completion).await {
            Ok(logprobs) => Ok(Some(TeacherScore { name: teacher.name.clone(), logprobs })),
            Err(_) if teacher.on_error == OnRewardError::Skip => Ok(None),
            Err(problem) => Err(Fault::new(
                FaultKind::Endpoint,
                format!("teacher `{}`, endpoint `{}`: {problem}", teacher.name, teacher.endpoint),
            )),
        }
    }

    fn teacher_of(&self, seat: &Seat, source: &str) -> Option<&EndpointTeacher> {
        teacher_by_source(self.seats.get(seat)?, source).map(|teacher| &**teacher)
    }
}

impl EndpointTeacher {
    fn new(
        (name, endpoint): (&str, &str),
        config: &EndpointConfig,
        client: Arc<Client>,
        on_error: OnRewardError,
    ) -> Self {
        Self {
            name: name.to_owned(),
            endpoint: endpoint.to_owned(),
            client,
            model: config.model.clone().unwrap_or_default(),
            places: Semaphore::new(config.max_requests.get().min(Semaphore::MAX_PERMITS)),
            on_error,
        }
    }

    /// Returns the log-prob of each token of a completion, `[T]`.
    async fn score(&self, prompt: &[u32], completion: &[u32]) -> Result<Vec<f32>, String> {
        let ids = [prompt, completion].concat();
        let _place = self.places.acquire().await.map_err(|error| error.to_string())?;
        let answer = self.client.post(&Arc::new(self.body(&ids))).await.body?;
        let scored = read_logprobs(&answer, &ids);
        let mut logprobs = scored.map_err(|problem| self.at_address(&problem))?;
        Ok(logprobs.split_off(prompt.len().saturating_sub(1)))
    }

    /// Body of a request for the log-probs of token ids.
    fn body(&self, ids: &[u32]) -> Value {
        json!({
            "model": self.model,
            "prompt": ids,
            "echo": true,
            "logprobs": 0,
            "max_tokens": 0,
            "temperature": 1.0,
            "return_token_ids": true,
            "stream": false,
        })
    }

    fn at_address(&self, problem: &str) -> String {
        format!("{}: {problem}", self.client.address())
    }

    /// Scores two texts with a common beginning in both orders, and one of them twice. Prefix caches of servers have returned other
    /// log-probs for a text that shares its beginning with an earlier one.
    fn probe(&self, tokenizer: &Tokenizer) -> Result<(), String> {
        let begin = "A text of some length, with which both of the two texts of this probe begin, and then ";
        let texts = ["one of them ends.", "the other one has another end."];
        let ids = texts.map(|end| tokenizer.encode_plain(&format!("{begin}{end}")));
        let [one, other] = ids.map(|ids| ids.map_err(|error| error.to_string()));
        let (one, other) = (one?, other?);
        let mut first: BTreeMap<&[u32], Vec<f32>> = BTreeMap::new();
        for ids in [&one, &other, &other, &one, &one] {
            let answer = self.client.ask(&self.body(ids))?;
            let found = read_logprobs(&answer, ids).map_err(|problem| self.at_address(&problem))?;
            let before = first.entry(ids).or_insert_with(|| found.clone());
            let differences = before.iter().zip(&found).map(|(a, b)| (a - b).abs());
            let most = differences.fold(0.0, f32::max);
            if most > PROBE_DIFFERENCE {
                return Err(self.at_address(&format!(
                    "gave log-probs of the same text that differ by {most}: start the server without its prefix cache"
                )));
            }
        }
        Ok(())
    }
}

/// Reads the log-probs of all token ids but the first, which has none.
fn read_logprobs(answer: &str, ids: &[u32]) -> Result<Vec<f32>, String> {
    let answer: Value =
        serde_json::from_str(answer).map_err(|error| format!("answered no JSON: {error}"))?;
    let choice = &answer["choices"][0];
    if let Some(read) = choice["prompt_token_ids"].as_array() {
        let same = read.iter().map(Value::as_u64).eq(ids.iter().map(|id| Some(u64::from(*id))));
        if !same {
            return Err("read other token ids than those that were sent".to_owned());
        }
    }
    let Some(found) = choice["logprobs"]["token_logprobs"].as_array() else {
        return Err(
            "answered without `logprobs.token_logprobs`: it does not score prompts (`echo`)"
                .to_owned(),
        );
    };
    // A server that samples a token all the same has a log-prob for it.
    if !(ids.len()..=ids.len() + 1).contains(&found.len()) {
        let (found, sent) = (found.len(), ids.len());
        return Err(format!("gave {found} log-probs for {sent} token ids"));
    }
    if !found[0].is_null() {
        return Err(
            "gave the first token a log-prob: its log-probs belong to other tokens".to_owned()
        );
    }
    let logprobs = found[1..ids.len()].iter().map(|value| {
        let value = value.as_f64().filter(|value| value.is_finite() && *value <= 1e-3);
        value.map(|value| value as f32)
    });
    let all: Option<Vec<f32>> = logprobs.collect();
    all.ok_or_else(|| "gave a token a log-prob that is no number of 0 or less".to_owned())
}

#[cfg(test)]
mod tests;

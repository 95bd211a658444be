//! `POST /v1/completions`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;
use tokio::sync::mpsc;

use super::answer::{finish_reason, ids, usage, whole};
use super::asked::Asked;
use super::catalog::Entry;
use super::choice::{Batch, Echo, End, Job, News};
use super::server::ModelServer;
use crate::openai::completions::{TextChoice, TextChunk, TextCompletion, TextObject};
use crate::openai::writer::Header;
use crate::openai::{
    Choices, Common, Fields, MaxTokens, Part, Reported, Shape, Streaming, TextLogprobsWriter,
    token_ids,
};
use crate::queue::Admitted;
use crate::refusal::Refusal;
use crate::refusal::json_response;
use crate::stream::{Events, attended, events};
use maverl::runtime::Sampling;
use maverl::runtime::Step;

/// Longest completion of a request that does not say, as in OpenAI's protocol.
const DEFAULT_TOKENS: usize = 16;
/// Maximum number of prompts of a request.
const MOST_PROMPTS: usize = 256;

/// A request that was read.
struct Text {
    batch: Batch,
    choices: Choices,
    streaming: Streaming,
    /// Text of each prompt.
    prompts: Vec<String>,
    echo: Echo,
}

pub(super) async fn route(State(server): State<Arc<ModelServer>>, request: Request) -> Response {
    server.answer("completions", request, |asked| answer(&server, asked)).await
}

async fn answer(server: &Arc<ModelServer>, asked: Asked) -> Result<Response, Refusal> {
    let strict = server.settings.strict;
    let (text, admitted) =
        asked.read(move |entry, fields| Text::read(strict, entry, fields)).await?;
    if text.streaming.stream {
        return Ok(text.stream(server, admitted));
    }
    attended(&server.metrics, text.whole(server, &admitted)).await
}

impl Text {
    fn read(strict: bool, entry: Arc<Entry>, mut fields: Fields) -> Result<Self, Refusal> {
        let fields = &mut fields;
        let prompts = prompts(fields, &entry)?;
        let Common { sampling } = Common::read(fields, entry.vocabulary())?;
        let echoes = fields.flag("echo")?;
        let limit = MaxTokens::read(fields, &["max_tokens"], i64::from(!echoes))?;
        let choices = Choices::read(fields)?;
        let streaming = Streaming::read(fields)?;
        let reported = Reported::of_text(fields)?;
        if fields.take("add_special_tokens").is_some_and(|value| value != true) {
            return Err(fields.error("add_special_tokens", "is false; send token ids as `prompt`"));
        }
        fields.finish(strict)?;
        let echo = match (echoes, limit.requested()) {
            (false, _) => Echo::No,
            (true, Some(0)) => Echo::PromptAlone,
            (true, _) => Echo::Prompt,
        };
        if streaming.stream && echo != Echo::No {
            return Err(fields.error("echo", "is not for `stream`; leave one of them out"));
        }
        let (mut jobs, mut texts) = (Vec::new(), Vec::new());
        for (ids, text) in prompts {
            let limit =
                limit.or(DEFAULT_TOKENS.min(entry.context().saturating_sub(ids.len()).max(1)));
            let max_tokens = limit.within(ids.len(), entry.context())?.max(1);
            let sampling = Arc::new(Sampling { max_tokens, ..sampling.clone() });
            let prompt: Arc<[u32]> = ids.into();
            texts.push(text);
            jobs.extend((0..choices.n).map(|i| Job {
                prompt: Arc::clone(&prompt),
                sampling: Arc::clone(&sampling),
                seed: choices.seed_of(i),
                echo,
                grammar: None,
            }));
        }
        let listed = jobs.iter().map(Job::listed).fold(0, usize::saturating_add);
        reported.bound(listed)?;
        // Steps of a prompt are needed for its log-probs alone.
        if !reported.logprobs {
            jobs.iter_mut()
                .filter(|job| job.echo == Echo::Prompt)
                .for_each(|job| job.echo = Echo::No);
        }
        let (shape, eager) = (Shape::default(), streaming.stream);
        let batch = Batch { entry, shape, reported, jobs, eager, cached: 0.into() };
        Ok(Self { batch, choices, streaming, prompts: texts, echo })
    }

    fn prompt_of(&self, index: usize) -> &str {
        &self.prompts[index / self.choices.n as usize]
    }

    /// Answers at the end.
    async fn whole(&self, server: &ModelServer, admitted: &Admitted) -> Result<Response, Refusal> {
        let batch = &self.batch;
        let wholes = whole(server, batch, admitted).await?;
        let Header { id, created, model, system_fingerprint } = batch.entry.header("cmpl");
        let (mut choices, mut tokens) = (Vec::new(), 0);
        for (index, choice) in wholes.iter().enumerate() {
            tokens += choice.end.as_ref().map_or(0, |end| end.tokens);
            let text = match self.echo {
                Echo::No => choice.content(),
                Echo::Prompt => format!("{}{}", self.prompt_of(index), choice.content()),
                Echo::PromptAlone => self.prompt_of(index).to_owned(),
            };
            let mut logprobs = self.logprobs(index);
            let end = choice.end.as_ref();
            choices.push(self.choice(index, text, &choice.steps, end, &mut logprobs));
        }
        let answer = TextCompletion {
            id,
            object: TextObject::TextCompletion,
            created,
            model,
            choices,
            system_fingerprint,
            usage: usage(batch, tokens),
            maverl: Some(batch.entry.origin(self.choices.seed)),
            prompt_token_ids: None,
        };
        Ok(json_response(StatusCode::OK, &answer))
    }

    /// Returns the writer of the log-probs of a choice.
    fn logprobs(&self, index: usize) -> TextLogprobsWriter<'_> {
        let Batch { entry, reported, jobs, .. } = &self.batch;
        let prompt = match self.echo {
            Echo::No => (&[][..], ""),
            Echo::Prompt | Echo::PromptAlone => (&*jobs[index].prompt, self.prompt_of(index)),
        };
        TextLogprobsWriter::new(entry.tokenizer(), reported.form, prompt)
    }

    /// Returns a choice, or its part in a chunk.
    fn choice(
        &self,
        index: usize,
        text: String,
        steps: &[Step],
        end: Option<&End>,
        logprobs: &mut TextLogprobsWriter<'_>,
    ) -> TextChoice {
        let Batch { reported, jobs, .. } = &self.batch;
        let prompt = &jobs[index].prompt;
        let first = prompt.first().copied().filter(|_| self.echo != Echo::No);
        // Steps of an echoed prompt come first.
        let echoed = if jobs[index].echo == Echo::No { 0 } else { prompt.len() - 1 };
        TextChoice {
            index,
            text,
            logprobs: reported.logprobs.then(|| logprobs.part(first, steps)),
            finish_reason: end.map(finish_reason),
            stop_reason: Some(end.and_then(|end| end.stop.clone())),
            token_ids: reported.ids.then(|| ids(&steps[echoed.min(steps.len())..])),
            prompt_token_ids: (reported.ids && !self.streaming.stream).then(|| prompt.to_vec()),
        }
    }

    /// Answers in chunks.
    fn stream(self, server: &Arc<ModelServer>, admitted: Admitted) -> Response {
        let of = Arc::clone(server);
        events(&server.metrics, move |events| async move {
            self.write(&of, &admitted, &events).await;
        })
    }

    async fn write(&self, server: &ModelServer, admitted: &Admitted, events: &Events) {
        let (news, mut received) = mpsc::channel::<(usize, News)>(64);
        let batch = &self.batch;
        let header = batch.entry.header("cmpl");
        let asked = self.streaming.include_usage;
        let write = async {
            let mut tokens = 0;
            let writers = (0..batch.jobs.len()).map(|index| self.logprobs(index));
            let mut logprobs: Vec<TextLogprobsWriter<'_>> = writers.collect();
            let mut origin = Some(batch.entry.origin(self.choices.seed));
            while let Some((index, news)) = events.next(&mut received).await {
                let choice = match news {
                    News::More { parts, steps } => {
                        let text: String = parts.iter().filter_map(content).collect();
                        self.choice(index, text, &steps, None, &mut logprobs[index])
                    }
                    News::End(end) => {
                        tokens += end.tokens;
                        let text = String::new();
                        let choice =
                            self.choice(index, text, &[], Some(&end), &mut logprobs[index]);
                        TextChoice { logprobs: None, ..choice }
                    }
                };
                let (maverl, usage) = (origin.take(), asked.then_some(None));
                let chunk = TextChunk { maverl, usage, ..TextChunk::new(&header, vec![choice]) };
                if !events.send(&chunk).await {
                    return None;
                }
            }
            Some(tokens)
        };
        let (done, tokens) = tokio::join!(batch.run(server, admitted, news), write);
        match (done, tokens) {
            (Err(refusal), _) => events.fail(&refusal).await,
            (Ok(()), None) => {}
            (Ok(()), Some(tokens)) => {
                if asked {
                    let usage = Some(Some(usage(batch, tokens)));
                    let chunk = TextChunk { usage, ..TextChunk::new(&header, Vec::new()) };
                    events.send(&chunk).await;
                }
                events.done().await;
            }
        }
    }
}

fn content(part: &Part) -> Option<&str> {
    match part {
        Part::Content(text) => Some(text),
        _ => None,
    }
}

/// Reads `prompt`: a text, a list of texts, a list of ids, or a list of such lists. Returns ids and text of each.
fn prompts(fields: &mut Fields, entry: &Entry) -> Result<Vec<(Vec<u32>, String)>, Refusal> {
    let Some(value) = fields.take("prompt") else {
        return Err(fields.error("prompt", "is missing; write a text or a list of token ids"));
    };
    let kinds = "a text, a list of texts, a list of token ids, or a list of such lists";
    let list = match &value {
        Value::String(_) => std::slice::from_ref(&value),
        Value::Array(list) if list.first().is_some_and(Value::is_u64) => {
            std::slice::from_ref(&value)
        }
        Value::Array(list) if !list.is_empty() => list.as_slice(),
        other => return Err(fields.wrong("prompt", other, kinds)),
    };
    if list.len() > MOST_PROMPTS {
        let what = format!("has {} prompts; a request may have {MOST_PROMPTS}", list.len());
        return Err(fields.error("prompt", &what));
    }
    let tokenizer = entry.tokenizer();
    let read = |one: &Value| match one {
        Value::String(text) => {
            entry.bound_text(text)?;
            let ids = tokenizer.encode_framed(text);
            let ids = ids.map_err(|error| Refusal::invalid("prompt", error.to_string()))?;
            Ok((ids, text.clone()))
        }
        Value::Array(_) => {
            let ids =
                token_ids(one, entry.vocabulary()).map_err(|what| fields.error("prompt", &what))?;
            entry.bound_ids(&ids)?;
            let text = tokenizer.decode_raw(&ids);
            Ok((ids, text))
        }
        other => Err(fields.wrong("prompt", other, kinds)),
    };
    list.iter().map(read).collect()
}
